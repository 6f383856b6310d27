"""Long work on what a stranger sent, off the event loop: in a thread that does one piece at a time, so that the loop
competes with one other thread for the interpreter and not with as many as there are callers."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

SHORT = 16_000  # bytes that are worked on where they came in: a millisecond
_LONG = 128_000
_A_SCHEMA = 32  # a byte of a schema may cost what so many of a text do: a pattern of 500 bytes takes 25 ms to read
# two, so that a body of 20 kB does not stand behind other people's of 1 MB
_short = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies")
_long = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies-long")

T = TypeVar("T")


async def in_turn(n_bytes: int, work: Callable[[], T]) -> T:
    """`work()`, which costs what `n_bytes` of text cost. It is Python code or calls some often, or lets go of the
    interpreter: a C call that takes a second holds it for a second in any thread."""
    if n_bytes <= SHORT:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_long if n_bytes > _LONG else _short, work)


def cost_of_schema(n_bytes: int) -> int:
    """Measure the cost of a body of so many bytes with a schema in it. Never on the loop."""
    return max(SHORT + 1, n_bytes * _A_SCHEMA)
