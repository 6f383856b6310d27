"""The queue of runner jobs: turns of tenants beside first in, first out, and what a claim costs.

    python -m deploy.embedded.within -m tests.bench.fair_queue [--seeds 3] [--days busy calm] [--out FILE]

2 runners, 20 tenants, 200 compiles (`fair_queue_world.day`): four big tenants on the Team plan with 46 long trainings
each, sixteen small ones on the Free plan with one short training each. A busy day: all come within 12 hours, the big
ones' in the first half, six times what two runners can do. A calm one: within 96, the big ones' in the first half, four
fifths of it, in bursts. Both arms are the product's own claim, heartbeat and report on a real Postgres, with a clock
that is moved from event to event; first in, first out is the same queue with everything in the name of one tenant.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

N_QUEUED, N_ENDED, N_TENANTS, N_TURNS, N_ROUNDS = 10_000, 50_000, 1_000, 5_000, 40
HOURS = {"busy": 12.0, "calm": 96.0}
BAR = 5.0  # times shorter than first in, first out: the p95 wait of a small tenant


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Seconds that the compiles of one day waited for a runner."""

    small: list[float]
    big: list[float]
    ended: float
    n_preempted: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one look takes: on the clock, and of the asking process's CPU, without Postgres."""

    p50_ms: float
    p95_ms: float
    cpu_ms: float


Arms = dict[tuple[str, bool], list[Arm]]
ARM = {False: "first in, first out", True: "turns"}


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -(-int(share * 100) * len(ranked) // 100) - 1))]


def measure(seed: int, *, is_fair: bool, **size: Any) -> Arm:
    from tests.bench.fair_queue_world import day, play
    from tests.factories import make_tenant

    compiles = day(seed, **size)
    owners = sorted({compile.owner for compile in compiles})
    if is_fair:
        tenants = {name: make_tenant(name, plan="team" if name.startswith("big") else "free") for name in owners}
    else:
        tenants = dict.fromkeys(owners, make_tenant("everybody"))
    world = play(compiles, tenants)
    return Arm(
        small=[compile.waited_s for compile in compiles if compile.is_small],
        big=[compile.waited_s for compile in compiles if not compile.is_small],
        ended=max(compile.ended for compile in compiles),
        n_preempted=world.n_preempted,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--days", nargs="+", choices=list(HOURS), default=list(HOURS))
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--costs", action="store_true", help="measure what looks at a long queue cost, and nothing else"
    )
    options = parser.parse_args()
    _prepare()
    if options.costs:
        print("\n".join(_cost_lines(_claims())))
        return 0
    arms = {
        (day, is_fair): [measure(seed, is_fair=is_fair, hours=HOURS[day]) for seed in range(options.seeds)]
        for day in options.days
        for is_fair in (False, True)
    }
    text = _page(arms, _claims(), options.seeds)
    print(text) if options.out is None else options.out.write_text(text, "utf-8")
    return 0 if all(_is_fair_enough(arms, day) for day in options.days) else 1


def _is_fair_enough(arms: "Arms", day: str) -> bool:
    fifo, fair = ([x for arm in arms[day, is_fair] for x in arm.small] for is_fair in (False, True))
    return quantile(fair, 0.95) * BAR <= quantile(fifo, 0.95)


def _prepare() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    call_command("install_tenant_key")


def _claims() -> dict[str, Cost]:
    """Milliseconds (p50, p95) of looks at a long queue: 10,000 jobs of 1,000 tenants."""
    from django.utils import timezone

    from backend.runner_jobs import leases, preemption, queue_places
    from backend.runner_jobs.models import RunnerJob
    from tests.bench.fair_queue_world import KINDS

    _fill()
    before = _timed(_claim_of_before)
    claim = _timed(lambda: leases.claim("r1", KINDS))
    RunnerJob.objects.filter(status="leased").update(attempts_in_vain=0)  # each has kept a checkpoint
    return {
        "first in, first out: the claim's statement of before": before,
        "turns: the whole claim, with lease and payload": claim,
        "a heartbeat's look for a job to give way to": _timed(lambda: preemption.due_preemptions(timezone.now())),
        "all places and expected starts, once every 3 s": _timed(lambda: queue_places.pools_now(timezone.now()), n=10),
    }


def _fill() -> None:
    from django.db import connection

    from backend.blobs import put_json
    from backend.domain.jobs.runner_jobs import RunnerJobKind
    from backend.rest.new_ids import new_uuid7
    from backend.runner_jobs.models import RunnerJob, RunnerTurn

    RunnerJob.objects.all().delete()
    now = datetime.now(UTC)
    tenants = [new_uuid7() for _ in range(N_TENANTS)]
    payloads = {tenant: put_json(tenant, {"base_model": "tiny"}) for tenant in tenants}
    owners = [tenants[n % N_TENANTS] for n in range(N_QUEUED)]
    RunnerJob.objects.bulk_create(
        RunnerJob(tenant_id=tenant, kind=RunnerJobKind.DISTILL, status="queued", payload_sha256=payloads[tenant])
        for tenant in owners
    )
    RunnerJob.objects.bulk_create(
        RunnerJob(tenant_id=tenants[n % N_TENANTS], kind=RunnerJobKind.DISTILL, status="succeeded", payload_sha256="")
        for n in range(N_ENDED)
    )
    RunnerTurn.objects.bulk_create(
        RunnerTurn(tenant_id=owners[n], started_at=now - timedelta(seconds=90), ended_at=now - timedelta(seconds=30))
        for n in range(N_TURNS)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runner_jobs_runnerjob")


def _claim_of_before() -> None:
    from django.db import transaction

    from backend.runner_jobs.models import RunnerJob

    with transaction.atomic():
        jobs = RunnerJob.objects.select_for_update(skip_locked=True).filter(status="queued", kind__in=["distill"])
        assert jobs.filter(attempts_in_vain__lt=4).order_by("created_at").first() is not None


def _timed(act: Callable[[], object], *, n: int = N_ROUNDS) -> Cost:
    act()
    took, cpu_began = [], time.process_time()
    for _ in range(n):
        began = time.perf_counter()
        act()
        took.append((time.perf_counter() - began) * 1000)
    cpu_ms = (time.process_time() - cpu_began) * 1000 / n
    return Cost(p50_ms=statistics.median(took), p95_ms=quantile(took, 0.95), cpu_ms=cpu_ms)


def _page(arms: Arms, claims: dict[str, Cost], n_seeds: int) -> str:
    lines = [
        "# The queue of runner jobs",
        "",
        f"Written by `make bench-queue` on {datetime.now(UTC):%Y-%m-%d}; {platform.machine()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}. How: the",
        f"docstrings of `tests/bench/fair_queue.py` and `fair_queue_world.py`. {n_seeds} days (seeds) of 2 runners, "
        "20 tenants, 200 compiles. The clock",
        "is simulated; queue, claims, heartbeats and reports are the product's on Postgres. In brackets: the least and "
        "the most of the days.",
        "",
        "| minutes of waiting for a runner, all jobs of a compile | small, p50 | small, p95 | big, p50 | big, p95 |",
        "|---|---|---|---|---|",
        *(f"| {day} day, {ARM[is_fair]} | {' | '.join(_cells(days))} |" for (day, is_fair), days in arms.items()),
        "",
        "| | all compiles done after, h | trainings that gave way, a day |",
        "|---|---|---|",
        *(
            f"| {day} day, {ARM[is_fair]} | {_spread([one.ended / 3600 for one in days])} "
            f"| {_spread([one.n_preempted for one in days])} |"
            for (day, is_fair), days in arms.items()
        ),
        "",
        *_cost_lines(claims),
    ]
    return "\n".join(lines) + "\n"


def _cost_lines(claims: dict[str, Cost]) -> list[str]:
    return [
        f"With {N_QUEUED:,} queued jobs of {N_TENANTS:,} tenants and {N_TURNS:,} turns in the window:",
        "",
        "| | p50, ms | p95, ms | CPU of the asking process, ms |",
        "|---|---|---|---|",
        *(f"| {name} | {cost.p50_ms:.1f} | {cost.p95_ms:.1f} | {cost.cpu_ms:.1f} |" for name, cost in claims.items()),
    ]


def _cells(days: list[Arm]) -> list[str]:
    return [
        _spread([quantile([x / 60 for x in of(day)], share) for day in days], quantile([x / 60 for x in flat], share))
        for of in (lambda day: day.small, lambda day: day.big)
        for flat in ([x for day in days for x in of(day)],)
        for share in (0.5, 0.95)
    ]


def _spread(values: Sequence[float], whole: float | None = None) -> str:
    middle = statistics.median(values) if whole is None else whole
    return f"{middle:,.1f} [{min(values):,.1f}, {max(values):,.1f}]"


if __name__ == "__main__":
    raise SystemExit(main())
