"""Preflight as workers have it: the tiny calls to its models, and what a compile begins with."""
