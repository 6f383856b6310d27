"""The files of bases on this machine: fetched from a model hub, kept within a limit, checked, hashed once."""
