"""Synthesis for ECP5 with Yosys and nextpnr from PyPI, and checks of what comes out."""
