"""`python -m coatcheck_cli` is the command `coatcheck`."""

from coatcheck_cli.main import main

main(prog_name="coatcheck")
