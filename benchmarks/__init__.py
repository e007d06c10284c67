"""What coatcheck costs, measured: `./dev bench`."""
