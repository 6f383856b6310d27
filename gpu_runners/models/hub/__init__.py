"""Bases from a model hub: what is fetched, where it is kept, and what is refused."""
