"""The command line of coatcheck. What it does is in `coatcheck_cli.main`; nothing is imported before it is used."""
