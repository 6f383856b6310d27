"""Tasks that compile as they stand, with the built-in teacher: what a newcomer tries first."""
