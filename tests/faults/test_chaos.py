"""Everything is killed, emptied and stopped at random for ten minutes while compiles run: all end by themselves,
and the books are clean. What an audit did by hand when two compiles of eight had to be resumed.

`KOLM_CHAOS_SHARE=0.25` does a quarter of it, for whoever changes something here.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import psutil
import psycopg
import pytest
import redis

from backend.domain.artifact import kolm_verify
from deploy.embedded.home import ROOT
from deploy.embedded.layout import Part
from tests.acceptance.books import check_books, uuid_of
from tests.acceptance.deployment import TERMINAL, Customer, Deployment, Row, eventually
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

SEED, SHARE = 101, float(os.environ.get("KOLM_CHAOS_SHARE", "1"))
N_COMPILES, FAULTS_S, TAIL_S = 8, 630.0, 600.0
KILLS = {
    Part.WORKER: 13,
    Part.WEB: 11,
    Part.VALKEY: 6,
    Part.POSTGRES: 2,
    Part.RUNNER: 3,
    Part.UPKEEP: 4,
    Part.DELIVERIES: 3,
    Part.GRAMMAR: 3,
    Part.SERVER: 3,
}
STOPS = {Part.WORKER: 7, Part.RUNNER: 9, Part.WEB: 1}
OTHERS = {"flush": 3, "backend": 6, "child": 4}
LONGEST_STOP_S = 25.0
pytestmark = pytest.mark.timeout(int(FAULTS_S + 4 * TAIL_S + 300))


def all_faults(deployment: Deployment, rng: random.Random) -> list[tuple[str, Callable[[], bool]]]:
    """The faults in a random order, each with what does it; that is False while there is nobody to do it to."""
    faults: list[tuple[str, Callable[[], bool]]] = []
    for part, n in KILLS.items():
        faults += [(f"kill {part}", lambda part=part: kill(deployment.child(part)))] * n
    for part, n in STOPS.items():
        faults += [
            (f"stop {part}", lambda part=part: stop(deployment.child(part), rng.uniform(10, LONGEST_STOP_S)))
        ] * n
    hands = {"flush": flush, "backend": kill_backend, "child": kill_child}
    for name, n in OTHERS.items():
        faults += [(name, lambda name=name: hands[name](deployment, rng))] * n
    rng.shuffle(faults)
    return faults[: round(len(faults) * SHARE)]


def kill(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def stop(pid: int, seconds: float) -> bool:
    """Stop a process and let it go on later, whatever else is done to it meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(seconds, lambda: suppress_gone(lambda: os.kill(pid, signal.SIGCONT))).start()
        return True
    return False


def suppress_gone(act: Callable[[], None]) -> None:
    with suppress(ProcessLookupError):
        act()


def flush(deployment: Deployment, rng: random.Random) -> bool:
    with suppress(redis.RedisError), redis.Redis.from_url(deployment.plan.redis_url, socket_timeout=2) as client:
        return bool(client.flushall())
    return False


def kill_backend(deployment: Deployment, rng: random.Random) -> bool:
    """One of Postgres' processes for a connection of ours; the others restart with it."""
    with suppress(psycopg.OperationalError):
        pids = deployment.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'kolm-app'")
        return bool(pids) and kill(rng.choice(pids)["pid"])
    return False


def kill_child(deployment: Deployment, rng: random.Random) -> bool:
    """The process in which the runner trains."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(deployment.child(Part.RUNNER)).children()
        return bool(children) and kill(rng.choice(children).pid)
    return False


def wreak(deployment: Deployment, *, over_s: float) -> Counter[str]:
    """All faults, spread evenly but for some chance; how often each was done."""
    rng, done = random.Random(SEED), Counter[str]()
    faults = all_faults(deployment, rng)
    started = time.monotonic()
    for n, (name, act) in enumerate(faults):
        due = started + over_s * (n + rng.uniform(0, 0.9)) / len(faults)
        time.sleep(max(0.0, due - time.monotonic()))
        for _ in range(40):  # who is dead is started again within seconds
            if act():
                done[name] += 1
                break
            time.sleep(0.25)
    return done


def submit(customer: Customer, spec: Row) -> str:
    """Send a compile until it is taken, as clients do."""

    def look() -> str | None:
        with suppress(Exception):
            response = customer.api.post("/v1/compiles", json=spec, headers={"Idempotency-Key": spec["name"]})
            return str(response.json()["id"]) if response.status_code == 202 else None
        return None

    return eventually(look, within_s=60, every_s=0.5, what="a compile is taken")


def statuses(deployment: Deployment, ids: list[str]) -> dict[str, str]:
    with suppress(psycopg.OperationalError):
        query = "SELECT id, status FROM compiles_compile WHERE id = ANY(%s)"
        found = {row["id"]: row["status"] for row in deployment.rows(query, [uuid_of(id) for id in ids])}
        return {id: found[uuid_of(id)] for id in ids}
    return {}


def test_all_compiles_end_by_themselves_and_the_books_are_clean(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    n_compiles, over_s = max(1, round(N_COMPILES * SHARE)), FAULTS_S * SHARE
    done: Counter[str] = Counter()
    wreaking = threading.Thread(target=lambda: done.update(wreak(deployment, over_s=over_s)))
    started = time.monotonic()
    ids: list[str] = []
    for n in range(n_compiles):
        if n == 1:
            wreaking.start()
        own = {"teacher": asks(teacher.url, f"slow-chaos-{n}", concurrency=4)} if n % 2 else {}
        ids.append(submit(customer, small_spec(f"chaos-{n}", train={"epochs": 24}, **own)))
        time.sleep(max(0.0, started + over_s * 0.7 * (n + 1) / n_compiles - time.monotonic()))
    if n_compiles == 1:
        wreaking.start()
    wreaking.join()
    n_ended = sum(status in TERMINAL for status in statuses(deployment, ids).values())
    print(
        f"{sum(done.values())} faults in {time.monotonic() - started:.0f} s, {n_ended} compiles had ended: {dict(done)}"
    )
    time.sleep(LONGEST_STOP_S)  # the last of the stopped goes on
    ended = eventually(
        lambda: found if (found := statuses(deployment, ids)) and set(found.values()) <= TERMINAL else None,
        within_s=TAIL_S,
        every_s=1,
        what="all compiles end",
    )
    print(f"all ended after {time.monotonic() - started:.0f} s: {Counter(ended.values())}")
    assert set(ended.values()) == {"succeeded"}, ended
    assert sum(done.values()) == round(sum([*KILLS.values(), *STOPS.values(), *OTHERS.values()]) * SHARE)
    keyring = customer.get("/.well-known/kolm-keys.json")
    for id in ids:
        compile = customer.get(f"/v1/compiles/{id}")
        check_books(deployment, customer, compile)
        assert kolm_verify.verify(customer.download(compile["artifact"]), keyring).exit_code == 0
    check_nothing_is_left(deployment)


def check_nothing_is_left(deployment: Deployment) -> None:
    """No money held, no hint unsent, no open job; the ledger's own check agrees."""
    unsent = "SELECT count(*) AS n FROM compiles_outbox WHERE sent_at IS NULL"
    eventually(lambda: deployment.rows(unsent)[0]["n"] == 0, within_s=30, what="the outbox is empty")
    open_jobs = "SELECT count(*) AS n FROM runner_jobs_runnerjob WHERE status IN ('queued', 'leased')"
    assert deployment.rows(open_jobs)[0]["n"] == 0
    held = "SELECT coalesce(sum(amount_microusd), 0) AS n FROM usage_ledgerline WHERE account = 'held'"
    assert deployment.rows(held)[0]["n"] == 0
    environment = deployment.plan.backend_environment()
    command = [sys.executable, "manage.py", "ledger_check"]
    checked = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout + checked.stderr
