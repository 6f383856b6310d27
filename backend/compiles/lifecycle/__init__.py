"""The life of a compile: how it is submitted, moves from status to status, is repeated without a step, and expires."""
