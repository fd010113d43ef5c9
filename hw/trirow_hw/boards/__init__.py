"""Boards that the accelerator is built for, and what is around it there."""
