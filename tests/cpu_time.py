"""What a piece of work costs of the processor, whatever a long suite has left in its process: one collection of a
million objects that other tests made takes a second."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def cpu_s(work: Callable[[], object], *, rounds: int = 1) -> float:
    """Of this thread, in the best of the rounds."""
    with own_objects_alone():
        return min(_once(work) for _ in range(rounds))


@contextmanager
def own_objects_alone() -> Iterator[None]:
    """Collections look at what is made from here on."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _once(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started
