"""Is a compile that takes drafts as good as one that has everything written? A paired experiment over seeds.

    python -m tests.bench.draft_kscore [--seeds 20] [--arms judge logprobs repeat] [--out FILE] [--report]

For each seed: a cold compile (an empty cache) and, for each way drafts enter a pool, a warm one of the same spec and
seed, whose tenant compiled a sibling before. Same held-out gold, same training options and seed. The arms: `judge` and
`logprobs` verify the drafts of a sibling whose task is worded differently; `repeat` takes the drafts of the very same
prompts, drawn with another seed, unasked.

One line of JSON a compile is appended to FILE (build/draft-kscore.jsonl) as it ends, and what FILE has is not run
again: an interrupted experiment goes on where it was. `--report` prints the tables of what FILE has. Postgres, Valkey
and the grammar teacher are this command's own and end with it.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.embedded.home import ROOT
from deploy.embedded.stack import EmbeddedServices
from tests.bench.draft_kscore_pairs import BASE, WARM, Measured
from tests.bench.draft_kscore_table import report

OUT = ROOT / "build" / "draft-kscore.jsonl"
_FROM_OUTSIDE = ("DATABASE_", "REDIS_", "KOLM_", "DJANGO_")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    options.out.parent.mkdir(exist_ok=True)
    if not options.report:
        with services():
            _run(options.out, range(1, options.seeds + 1), options.arms)
    print(report(read(options.out)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.draft_kscore", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--arms", nargs="+", choices=WARM, default=list(WARM))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--report", action="store_true")
    return parser


@contextmanager
def services() -> Iterator[None]:
    """The servers that a compile needs, and Django connected to them as the product's processes are."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_FROM_OUTSIDE)}
    with EmbeddedServices(services=("postgres", "valkey", "grammar"), variables=variables) as parts:
        os.environ.update(parts.env)
        owner = os.environ | {"KOLM_DB_ROLE": "owner"}
        for command in ("migrate", "install_tenant_key"):
            subprocess.run([sys.executable, "manage.py", command, "--verbosity", "0"], cwd=ROOT, env=owner, check=True)
        import django

        django.setup()
        logging.getLogger("kolm").setLevel(logging.WARNING)
        yield
        from django.db import connection

        connection.close()
        connection.close_pool()


def _run(out: Path, seeds: Sequence[int], arms: Sequence[str]) -> None:
    """One arm after the other, so that an experiment that is cut short has the first arms whole."""
    from tests.bench.draft_kscore_compile import measure

    done = {(row.arm, row.seed) for row in read(out)} if out.exists() else set()
    wanted = [(arm, seed) for warm in arms for seed in seeds for arm in (BASE[warm], warm)]
    for arm, seed in dict.fromkeys(wanted):
        if (arm, seed) in done:
            continue
        started, cpu = time.monotonic(), time.process_time()
        row = measure(arm, seed)
        with out.open("a") as lines:
            lines.write(json.dumps(row.to_json()) + "\n")
        spent = f"{time.monotonic() - started:.0f} s, {time.process_time() - cpu:.0f} s of CPU"
        print(f"seed {seed}, {arm}: {row.accuracy:.3f}, K {row.k_score_ppm / 1e6:.4f}; {spent}", file=sys.stderr)


def read(out: Path) -> list[Measured]:
    return [Measured(**json.loads(line)) for line in out.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
