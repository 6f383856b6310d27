"""What `tests.bench.event_streams` found, as a page and as verdicts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.event_streams import Found

P99_BAR_S, CATCH_UP_BAR_S, MEMORY_BAR_MB = 2.0, 15.0, 200.0


def report(found: Found) -> str:
    steady = [(at, wait) for each in found.readers for at, wait in each.live if at < found.restarted_at]
    after_cut = [(at, wait) for each in found.readers for at, wait in each.late if at < found.restarted_at]
    again = [(at, wait) for each in found.readers for at, wait in each.live if at >= found.back_at + CATCH_UP_BAR_S]
    gaps, doubles = faults(found)
    caught_up_s = catch_up_s(found)
    peak_mb = max(mb for _, mb in found.memory_mb)
    before_mb = max(mb for at, mb in found.memory_mb if at < found.restarted_at)
    n_seen = sum(len(each.seen) for each in found.readers)
    p99 = quantile([wait for _, wait in steady], 0.99)
    rows = [
        ("readers with a gap", str(gaps), "0", gaps == 0),
        ("readers with a duplicate", str(doubles), "0", doubles == 0),
        ("p99 of delivery, steady", f"{p99:.3f} s", "2 s", p99 <= P99_BAR_S),
        ("all caught up after the restart", f"{caught_up_s:.1f} s", "15 s", caught_up_s <= CATCH_UP_BAR_S),
        ("web process, largest", f"{peak_mb:.0f} MB", "200 MB", peak_mb <= MEMORY_BAR_MB),
    ]
    table = "\n".join(
        f"| {name} | {value} | {bar} | {'yes' if held else '**no**'} |" for name, value, bar, held in rows
    )
    n_cuts = sum(each.n_cuts for each in found.readers)
    n_connections = sum(each.n_connections for each in found.readers)
    return f"""# A thousand event streams

    make bench-streams

(`python -m tests.bench.event_streams`.) {found.machine}, {time.strftime("%Y-%m-%d %H:%M")}, load {found.load};
readers, writer, web process, Postgres and Valkey share the cores. T20 of the reliability research.

{found.n_streams:,} readers of {found.n_compiles:,} compiles, each of a tenant of its own, on one web process;
{found.per_s:g} events a second, each to {found.n_streams / found.n_compiles:g} readers. Every reader hangs up at
random, every {found.cut_every_s:.0f} s on average, waits as long as the server's `retry:` says and comes back with
`Last-Event-ID`; {found.seconds:.0f} s in, the web process is ended and started again. {n_cuts:,} cuts,
{n_connections:,} connections, {n_seen:,} events delivered. At the end every reader's numbers are compared with what
Postgres has.

| what | measured | bar | held |
|---|---|---|---|
{table}

Delivery is from the moment before the writer's transaction to the reader's clock: commit, wake-up, look and wire.

| events | n | p50 | p99 | largest |
|---|---|---|---|---|
{_latencies("written while the connection was open", steady)}
{_latencies("waiting when the connection came back", after_cut)}
{_latencies("the same, later than 15 s after the restart", again)}

The restart took {found.back_at - found.restarted_at:.1f} s until the server answered; readers that were caught up
count from then. Memory (pages shared by the server's two processes counted once): {found.memory_idle_mb:.0f} MB without
a stream, {before_mb:.0f} MB at most before the restart, {peak_mb:.0f} MB at most in all. CPU of the web process before
the restart: {found.web_cpu_s / found.seconds:.2f} of a core.
"""


def _yes(held: bool) -> str:
    return "yes" if held else "**no**"


def faults(found: Found) -> tuple[int, int]:
    """(readers that lack a number, readers that got one twice or out of order)."""
    gaps = doubles = 0
    for reader in found.readers:
        expected = list(range(1, found.expected[reader.path.split("/")[3]] + 1))
        gaps += set(reader.seen) != set(expected)
        doubles += len(set(reader.seen)) != len(reader.seen) or reader.seen != sorted(reader.seen)
    return gaps, doubles


def catch_up_s(found: Found) -> float:
    """From the server's first answer after the restart until the last reader had what was written before that."""
    last = [at for each in found.readers for at, wait in each.late + each.live if at >= found.back_at > at - wait]
    return max(last, default=found.back_at) - found.back_at


def _latencies(name: str, rows: list[tuple[float, float]]) -> str:
    waits = [wait for _, wait in rows]
    if not waits:
        return f"| {name} | 0 | | | |"
    shown = " | ".join(f"{wait:.3f} s" for wait in (quantile(waits, 0.5), quantile(waits, 0.99), max(waits)))
    return f"| {name} | {len(waits):,} | {shown} |"


def quantile(values: list[float], share: float) -> float:
    """The nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
