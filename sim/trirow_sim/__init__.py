"""Simulation of the accelerator: engines, memory models, comparison and reports."""
