"""The client for asyncio: made from the modules beside this folder, never changed by hand
(tests/gpu_runners/kolm/async_sources.py)."""
