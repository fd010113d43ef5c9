"""Gateware of the accelerator, in Amaranth; the list of files reads as the datapath."""
