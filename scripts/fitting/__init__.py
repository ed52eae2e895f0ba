"""How the coefficients of the memory budget are fitted to start-up logs."""
