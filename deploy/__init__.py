"""How kolm is put on machines: the embedded stack for one machine, compose and Docker files, and the lock that all of
them install from.
"""
