"""The commands that work on a `.kolm` on this machine, and the keys that it is trusted by."""
