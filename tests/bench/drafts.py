"""The draft cache's store beside other designs, with row-level security on: `python -m tests.bench.drafts`.

    --rows 320000      slices, of
    --tenants 1000     tenants
    --repeats 3        of the look-ups, the designs in turn
    --compile 240      look-ups in a batch
    --trials 400       pairs of points of the density oracle
    --quick            2,000 slices of 20 tenants, 24 look-ups in a batch: a smoke test
    --out FILE         the tables as Markdown, too

One process, one BLAS thread (OMP_NUM_THREADS=1), a Postgres of its own with the settings of production. `drafts_world`
says who has what, `drafts_lookups` and `drafts_shared` what is compared, `drafts_oracle` what an attacker does. Wall
and CPU milliseconds are of one look-up; CPU is this process's and the Postgres session's together.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.drafts_report import oracle_table, rates_table, sizes_table, table_of
from tests.bench.drafts_server import Server, clock, running_server
from tests.bench.drafts_world import classes_of, make_world
from tests.bench.selection_speed import install_peers

N_ADMITTED, N_COPIED = 150, 2_000


def run(server: Server, options: argparse.Namespace) -> str:
    """All tables. Imports what needs Django set up."""
    from tests.bench import drafts_lookups, drafts_oracle, drafts_rows, drafts_shared, drafts_writes

    with clock() as spent:
        world = make_world(options.rows, options.tenants)
    say(f"{len(world.rows):,} slices, {options.tenants:,} tenants, {len(world.pairs):,} pairs: {spent.wall_s:.0f} s")
    classes = classes_of(world)
    asked = list(dict.fromkeys(pair for pairs in classes.values() for pair in pairs))
    with clock() as spent:
        stored = drafts_rows.seal_world(world)
    say(f"keys, scopes and rotations of all pairs: {spent.wall_s:.0f} s")
    loaded = drafts_rows.load(server, world, stored, asked)
    shared, built = drafts_shared.load(server, world, stored)
    rates = loaded | {"COPY slices, no vector index": shared}
    say(f"global HNSW built in {built.wall_s:.0f} s ({built.cpu_s:.0f} s CPU)")
    n_drafts = drafts_rows.DRAFTS_PER_SOURCE * sum(pair.size for pair in asked)
    sizes = drafts_writes.bytes_per_row(server, len(world.rows), n_drafts)
    for name, pairs in classes.items():
        say(f"plan for {name}: {drafts_lookups.plan_of(stored, pairs[0])}")

    with tempfile.TemporaryDirectory() as folder:
        designs = drafts_lookups.all_designs(server, world, stored, Path(folder) / "gptcache.db", options.compile)
        measured = {}
        for name, pairs in classes.items():
            measured[name] = drafts_lookups.measure(world, stored, designs, pairs, options.repeats)
            say(table_of(name, pairs, measured[name]))
        del designs
    tables = [table_of(name, classes[name], of_class) for name, of_class in measured.items()]

    told = drafts_oracle.attack(server, world, stored, n_pairs=options.trials)
    say(oracle_table(told))
    n = N_ADMITTED // 5 if options.quick else N_ADMITTED
    for is_on in (True, False):
        server.set_fsync(is_on)
        rates |= drafts_writes.admissions(world, asked, n, options.repeats, "on" if is_on else "off")
    server.set_fsync(True)
    rates |= drafts_writes.copies(server, world, stored, asked, N_COPIED // 10 if options.quick else N_COPIED)
    say(rates_table(rates))
    say(sizes_table(sizes, {"build of the global HNSW": built}))
    evicted = drafts_writes.evictions(server, world, stored)
    rates |= {name: rate for name, (rate, _) in evicted.items()}
    vacuums = {f"vacuum after it: {name}": vacuum for name, (_, vacuum) in evicted.items()}
    return "\n".join(
        [
            *tables,
            rates_table(rates),
            sizes_table(sizes, vacuums | {"build of the global HNSW": built}),
            oracle_table(told),
        ]
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=320_000)
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compile", type=int, default=240)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.tenants, options.repeats, options.compile, options.trials = 2_000, 20, 1, 24, 10
    install_peers()
    say(f"load {os.getloadavg()[0]:.1f} before")
    with running_server() as server:
        text = run(server, options)
    say(f"load {os.getloadavg()[0]:.1f} after")
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
