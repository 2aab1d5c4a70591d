"""`python -m webmm.cli`."""

from webmm.cli import main

main(prog_name="webmm")
