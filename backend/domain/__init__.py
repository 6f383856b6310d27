"""The compiler's mathematics: standard library, numpy, scipy, canonical JSON and cryptography. It knows no clock,
network, environment or database; equal inputs give equal outputs.

What lies loose here is the kernel that every room may import; the rooms' order is in pyproject.toml (import-linter).
"""
