"""Data of the team: files looked at and stored, for compiles to name."""
