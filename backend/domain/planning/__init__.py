"""The plan of a compile, and its price: trials, estimates, ablations."""
