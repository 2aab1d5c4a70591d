"""`python -m webmm`, which is `webmm`."""

from webmm.cli import main

main(prog_name="webmm")
