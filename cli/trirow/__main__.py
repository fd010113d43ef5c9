"""`python -m trirow` is the `trirow` command."""

from trirow.main import main

main(prog_name="trirow")
