"""Choosing K of N rows by score and spread. `select` is the one entry point."""
