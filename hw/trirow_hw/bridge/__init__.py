"""The host's way to memory and registers over a serial line."""
