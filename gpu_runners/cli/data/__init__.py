"""The commands about data that a customer has: a spec drafted for it, its rows uploaded."""
