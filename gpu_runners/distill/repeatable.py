"""Making torch and BLAS give the same bits twice on the same machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """One thread (two gain nothing at these batch sizes and change the order of sums), deterministic kernels, a seeded
    generator."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threads, was = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.use_deterministic_algorithms(was)
        torch.set_num_threads(threads)
