"""Answering with a finished `.kolm`: load (verified first), predict, serve over loopback HTTP."""
