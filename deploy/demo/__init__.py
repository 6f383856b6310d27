"""The demonstrations, `make demo` and `make demo-json`: customers of a stack that is up, who see what its API shows."""
