"""The runner's process: it leases jobs over HTTP, has them worked on in a child process and reports. `python -m
gpu_runners.agent` starts it."""
