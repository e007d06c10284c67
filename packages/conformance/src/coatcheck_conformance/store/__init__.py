"""The suite of stores: every promise of the store contract, S1 to S20."""
