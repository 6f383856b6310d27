"""Many tenants' adapters behind one port, for the gateway; and one label artifact behind `kolm serve`. `python -m
gpu_runners.serving` starts a server."""
