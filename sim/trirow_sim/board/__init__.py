"""A whole board in the compiled simulator, with a pseudo-terminal for its serial port."""
