"""The tables that hold a tenant's data, and what is done with all of them: export and erasure."""
