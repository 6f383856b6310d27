"""The demonstrations, `make demo`, `make demo-json` and `make demo-drafts`: customers of a stack that is up, who see
what its API shows."""
