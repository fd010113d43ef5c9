"""SDR SDRAM: the chips, their pins, a controller, and AXI4 in front of it."""
