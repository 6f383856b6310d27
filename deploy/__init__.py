"""The ways in which kolm is put on machines: the embedded stack for one machine, compose and Docker files, and the lock
that all of them install from.

This file imports nothing: `deploy.setup` runs before anything is installed, and on interpreters that are too old.
"""
