"""Making torch and BLAS give the same bits twice on the same machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# cuBLAS reads it once, at its first call in a process, and refuses to be deterministic without it
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """One thread (two gain nothing at these batch sizes and change the order of sums), deterministic kernels, a seeded
    generator. Memory that is made and not written is left as it is: nothing here reads it.

    `torch.use_deterministic_algorithms` does the same and imports torch's compiler, which is 3 s of CPU time."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threads, was = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic
    filled, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
    torch.manual_seed(seed)
    try:
        with threadpool_limits(1):
            yield
    finally:
        memory.fill_uninitialized_memory = filled
        torch.set_deterministic_debug_mode(was)
        torch.set_num_threads(threads)
