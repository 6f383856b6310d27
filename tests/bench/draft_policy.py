"""Does the decision rule pay, and beside what? 80 streams of 250 slices of real text, four prices, eight policies.

    python -m tests.bench.draft_policy [DATA] [--set chosen|fresh|hwu64|all] [--streams N] [--seed S]
                                       [--vcache FOLDER] [--vcache-site FOLDER]

The rule and its constants were chosen on the set `chosen`: seven families of text, one seed. They were frozen before
the set `fresh` was played for the first time: the other seven families, another seed. `hwu64` is another data set,
which nothing was chosen on. With --vcache, vCache's own code plays the first thirty streams (see `draft_vcache`).
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.banking77_data import data_folder
from tests.bench.draft_policy_play import SCENARIOS, Policy, Scenario, play
from tests.bench.draft_policy_rules import Clairvoyant, Ours, Threshold, Unverified, VCache
from tests.bench.draft_policy_streams import N_CANDIDATES, Stream, draw_streams
from tests.bench.draft_policy_tables import Row, print_goals, print_requests, print_tables
from tests.bench.draft_policy_texts import Texts, read_hwu64, read_texts
from tests.bench.draft_vcache import DELTAS, POLICIES, VCacheItself, load_vcache

N_STREAMS = 80
SETS = {"chosen": (tuple(range(0, 14, 2)), 1), "fresh": (tuple(range(1, 14, 2)), 2)}
HWU64_SEED = 12
N_VCACHE_STREAMS = 30  # a second or two a stream and policy
PEERS = {"RedisVL": 0.1, "LangCache": 0.2, "GPTCache": 0.4}  # their default distances
# each shows at most twice what is needed; showing only what is needed was below that at every distance and price
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)


def same_at_every_price(name: str, streams: Sequence[Stream], policy: Callable[[int], Policy]) -> Row:
    """A policy that knows no price."""
    played = tuple(play(stream, policy(i)) for i, stream in enumerate(streams))
    return Row(name=name, played=(played,) * len(SCENARIOS))


def at_each_price(name: str, streams: Sequence[Stream], policy: Callable[[Scenario, int], Policy]) -> Row:
    return Row(
        name=name,
        played=tuple(tuple(play(s, policy(at, i)) for i, s in enumerate(streams)) for at in SCENARIOS),
    )


def rows_of(streams: Sequence[Stream], thresholds: Sequence[float] = THRESHOLDS) -> list[Row]:
    """Every policy, ours and the clairvoyant last."""
    fixed = [
        same_at_every_price(f"judge, d <= {d}, at most {most}", streams, lambda _, d=d, most=most: Threshold(d, most))  # type: ignore[misc]
        for most, distances in ((N_CANDIDATES, PEERS.values()), (2 * N_CANDIDATES, thresholds))
        for d in distances
    ]
    by_name = {row.name: row for row in fixed}
    rows = [
        same_at_every_price(f"unverified, d <= {d}", streams, lambda _, d=d: Unverified(d))  # type: ignore[misc]
        for d in PEERS.values()
    ]
    rows.append(same_at_every_price("vCache-style, an entry", streams, lambda i: VCache(is_global=False, seed=i)))
    rows.append(same_at_every_price("vCache-style, global", streams, lambda i: VCache(is_global=True, seed=i)))
    for peer, d in PEERS.items():
        row = by_name[f"judge, d <= {d}, at most {N_CANDIDATES}"]
        rows.append(Row(name=f"judge, d <= {d} ({peer})", played=row.played))
    rows += best_in_hindsight(fixed)
    rows.append(at_each_price("**ours**", streams, Ours))
    rows.append(at_each_price("clairvoyant", streams, lambda at, _: Clairvoyant(at)))
    return rows


def best_in_hindsight(fixed: Sequence[Row]) -> list[Row]:
    """One threshold for all streams, and one for each; at each price the best of them."""
    n_streams = len(fixed[0].played[0])
    nets = np.array([[row.nets(at) for at in range(len(SCENARIOS))] for row in fixed])
    of_all = nets.mean(axis=2).argmax(axis=0)
    single = tuple(fixed[best].played[at] for at, best in enumerate(of_all))
    each = tuple(
        tuple(fixed[nets[:, at, i].argmax()].played[at][i] for i in range(n_streams)) for at in range(len(SCENARIOS))
    )
    print("best single thresholds:", "; ".join(fixed[best].name for best in of_all))
    return [
        Row(name="judge, best threshold in hindsight", played=single),
        Row(name="judge, best for each stream in hindsight", played=each),
    ]


def vcache_rows(vcache: Any, streams: Sequence[Stream]) -> list[Row]:
    """vCache's own policies."""
    return [
        same_at_every_price(
            f"vCache itself, {policy}, delta {delta}",
            streams,
            lambda i, policy=policy, delta=delta: VCacheItself(vcache, policy, delta, streams[i], i),  # type: ignore[misc]
        )
        for policy in POLICIES
        for delta in DELTAS
    ]


def vcache_of(folder: Path | None, site: Path | None) -> Any | None:
    """vCache's package, or None, which is said on stderr."""
    if folder is None:
        print("vCache's own code is left out: no --vcache FOLDER, no $KOLM_VCACHE", file=sys.stderr)
        return None
    try:
        return load_vcache(folder, site)
    except ImportError as missing:
        print(f"vCache's own code is left out: {missing}", file=sys.stderr)
        return None


def streams_of(
    texts: Texts, names: Sequence[str], n: int, seed: int | None = None
) -> Iterator[tuple[str, int, list[Stream]]]:
    """(set, seed, streams), each set's own seed unless another is asked for. HWU64 is left out with a word where its
    file is not there."""
    for name in names:
        if name in SETS:
            families, own = SETS[name]
            drawn = own if seed is None else seed
            yield name, drawn, draw_streams(texts, families, n, drawn)
            continue
        try:
            hwu64 = read_hwu64(texts.outside)
        except FileNotFoundError as missing:
            print(f"HWU64 is left out: {missing.filename} is not there", file=sys.stderr)
            continue
        drawn = HWU64_SEED if seed is None else seed
        yield name, drawn, draw_streams(hwu64, range(len(hwu64.families)), n, drawn)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="the folder of the data sets (default $KOLM_DATA)")
    parser.add_argument("--set", choices=[*SETS, "hwu64", "all"], default="all")
    parser.add_argument("--streams", type=int, default=N_STREAMS)
    parser.add_argument("--seed", type=int, help="of the streams (default: each set's own)")
    for option, variable in (("--vcache", "KOLM_VCACHE"), ("--vcache-site", "KOLM_VCACHE_SITE")):
        default = os.environ.get(variable)
        parser.add_argument(option, type=Path, default=default and Path(default), help=f"default ${variable}")
    return parser.parse_args()


def main() -> int:
    asked = _asked()
    try:
        texts = read_texts(asked.data or data_folder())
    except FileNotFoundError as missing:
        print(f"No data, nothing measured: {missing}", file=sys.stderr)
        return 1
    vcache = vcache_of(asked.vcache, asked.vcache_site)
    is_met = True
    names = [*SETS, "hwu64"] if asked.set == "all" else [asked.set]
    for name, seed, streams in streams_of(texts, names, asked.streams, asked.seed):
        started = time.process_time()
        print(f"\n## {name}: {len(streams)} streams x {len(streams[0])} slices, seed {seed}\n")
        rows = rows_of(streams)
        print_tables(rows, streams)
        is_met &= print_goals(rows)
        if vcache is not None:
            some = streams[:N_VCACHE_STREAMS]
            beside = [row.of_first(len(some)) for row in rows if row.name.startswith(("vCache", "**"))]
            print_requests([*beside, *vcache_rows(vcache, some)])
        print(f"\n{time.process_time() - started:.0f} s of processor time", flush=True)
    return 0 if is_met else 2


if __name__ == "__main__":
    sys.exit(main())
