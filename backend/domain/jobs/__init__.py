"""The seam between the backend and a runner: jobs, their results, and when a lease may be ended."""
