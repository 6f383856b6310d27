"""What a compile will try and what it will cost: trials, estimates, ablations."""
