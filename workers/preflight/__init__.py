"""Preflight as workers have it: the one tiny call to the teacher, and what a compile begins with."""
