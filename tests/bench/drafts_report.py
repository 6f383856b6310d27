"""The draft bench's figures as Markdown tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tests.bench.drafts_lookups import Measured
    from tests.bench.drafts_oracle import Told
    from tests.bench.drafts_server import Spent
    from tests.bench.drafts_world import Pair
    from tests.bench.drafts_writes import Rate


def table_of(name: str, pairs: "Sequence[Pair]", measured: "Mapping[str, Measured]") -> str:
    """One class of pairs; the first design is what the others are given as a multiple of, repeat by repeat."""
    ours = next(iter(measured.values())).repeat_ms
    sizes = ", ".join(f"{pair.size:,}" for pair in pairs)
    lines = [
        f"### {name}: {sizes} slices",
        "",
        "| | p50 ms | p99 ms | CPU ms | x ours (spread) | recall | short |",
        "|---|---|---|---|---|---|---|",
    ]
    for design, of in measured.items():
        ratios = [theirs / mine for theirs, mine in zip(of.repeat_ms, ours, strict=True)]
        ratio = f"{np.median(ratios):.3g} ({min(ratios):.3g} to {max(ratios):.3g})"
        p50, p99 = np.percentile(of.wall_ms, [50, 99])
        recall = np.floor(1_000 * of.n_right / of.n_due) / 1_000  # one neighbour missed is not 1.000
        short = f"{of.n_short:,} of {of.n_lookups:,}"
        lines.append(
            f"| {design} | {p50:.3g} | {p99:.3g} | {np.median(of.cpu_ms):.3g} | {ratio} | {recall:.3f} | {short} |"
        )
    return "\n".join([*lines, ""])


def rates_table(rates: "Mapping[str, Rate | Sequence[Rate]]") -> str:
    lines = ["### Writes", "", "| | a second (spread) | CPU ms each |", "|---|---|---|"]
    for name, rate in rates.items():
        runs = rate if isinstance(rate, Sequence) else [rate]
        speeds = [run.per_s for run in runs]
        spread = f" ({min(speeds):,.3g} to {max(speeds):,.3g})" if len(runs) > 1 else f" (n = {runs[0].n:,})"
        lines.append(f"| {name} | {np.median(speeds):,.0f}{spread} | {np.median([run.cpu_ms for run in runs]):.3g} |")
    return "\n".join([*lines, ""])


def sizes_table(sizes: Mapping[str, float], times: "Mapping[str, Spent]") -> str:
    lines = ["### Bytes, and what takes long", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {size:,.0f} bytes a row |" for name, size in sizes.items()]
    lines += [f"| {name} | {_duration(spent)} |" for name, spent in times.items()]
    return "\n".join([*lines, ""])


def _duration(spent: "Spent") -> str:
    stopped = ", stopped unfinished" if spent.was_stopped else ""
    return f"{spent.wall_s:,.1f} s ({spent.cpu_s:,.1f} s CPU){stopped}"


def oracle_table(told: "Mapping[str, Mapping[str, Told]]") -> str:
    lines = ["### Density oracle", "", "| | AUC by row count | AUC by look-up time |", "|---|---|---|"]
    for name, by in told.items():
        cells = [f"{by[what].auc:.2f} ({by[what].low:.2f} to {by[what].high:.2f})" for what in ("rows", "time")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
