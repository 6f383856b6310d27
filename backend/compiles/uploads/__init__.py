"""Uploads of the tenant: rows that specs name, the files they come from, and the inputs that a spec resolves to."""
