"""kill -9 of everything, once at each step and in mid-training: the compile finishes by itself, and its books show no
effect twice, no call repeated beyond a batch, no number missing."""

import random
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from backend.domain.artifact import kolm_verify
from backend.domain.lifecycle import STEPS
from deploy.embedded.layout import Part
from tests.acceptance.books import (
    check_books,
    check_nothing_doubled,
    check_waste,
    runner_jobs,
    training_set,
    uuid_of,
)
from tests.acceptance.deployment import Customer, Deployment, Row
from tests.acceptance.event_reader import read_to_the_end
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer
from tests.faults.killing import Killer, everything_once

pytestmark = pytest.mark.timeout(2400)
MODEL = "slow-kills"
N_CANDIDATES, CONCURRENCY = 16, 4


def long_spec(teacher: TeacherServer, model: str) -> dict[str, Any]:
    """Two calls a slice to a teacher that takes its time, and a training long enough for a checkpoint."""
    asked = asks(teacher.url, model, concurrency=CONCURRENCY)
    return small_spec("faults", teacher=asked, sampling={"n_candidates": N_CANDIDATES}, train={"epochs": 48})


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """The compile that survived, who was killed how often, and what a reader of its events saw meanwhile."""

    compile: Row
    kills: Counter[Part]
    seen: list[Row]


@pytest.fixture(scope="module")
def killed(deployment: Deployment, customer: Customer, teacher: TeacherServer) -> Killed:
    compile_id = customer.compile(long_spec(teacher, MODEL))
    killer = Killer(deployment=deployment, compile=uuid_of(compile_id), plan=everything_once())
    with ThreadPoolExecutor(1) as pool:
        reader: Future[tuple[list[Row], int]] = pool.submit(
            read_to_the_end, customer, compile_id, random.Random(7), within_s=560
        )
        status = killer.work(within_s=540)
        events, _ = reader.result(timeout=30)
    print(f"killed: {dict(killer.kills)}; left: {len(killer.plan)}")
    assert status == "succeeded", customer.get(f"/v1/compiles/{compile_id}")["failure"]
    return Killed(compile=customer.get(f"/v1/compiles/{compile_id}"), kills=killer.kills, seen=events)


def test_a_compile_finishes_by_itself_whatever_is_killed(killed: Killed) -> None:
    assert killed.compile["status"] == "succeeded"
    once = (Part.UPKEEP, Part.VALKEY, Part.DELIVERIES, Part.POSTGRES, Part.WEB, Part.RUNNER, Part.SERVER)
    assert killed.kills == {Part.WORKER: len(STEPS)} | dict.fromkeys(once, 1)


def test_its_books_are_whole(deployment: Deployment, customer: Customer, killed: Killed) -> None:
    check_books(deployment, customer, killed.compile)
    receipts = customer.get(f"/v1/compiles/{killed.compile['id']}/receipts")["data"]
    assert [row["step"] for row in receipts] == list(STEPS)


def test_a_reader_of_its_events_missed_nothing(customer: Customer, killed: Killed) -> None:
    assert killed.seen == customer.events(killed.compile["id"])
    started = Counter(event["data"]["step"] for event in killed.seen if event["type"] == "step.started")
    assert started == dict.fromkeys(STEPS, 1)


def test_a_kill_repeats_one_batch_of_calls_at_most(
    deployment: Deployment, killed: Killed, teacher: TeacherServer
) -> None:
    wasted = check_waste(deployment, killed.compile, n_deaths=killed.kills[Part.WORKER])
    assert wasted, "no call was in flight when a worker died"
    # the far side agrees: what it answered twice is what the journal calls wasted
    asked = teacher.asked(MODEL)
    assert sum(asked.values()) - len(asked) <= len(wasted)


def test_nothing_is_doubled(deployment: Deployment, customer: Customer, killed: Killed) -> None:
    check_nothing_doubled(deployment, customer, killed.compile)


def test_the_training_went_on_from_its_checkpoint(deployment: Deployment, customer: Customer, killed: Killed) -> None:
    distill = runner_jobs(deployment, killed.compile["id"])[0]
    assert distill["attempts"] >= 2
    steps = customer.get(f"/v1/compiles/{killed.compile['id']}/steps")["data"]
    facts = next(step for step in steps if step["name"] == "distillation")["output"]["facts"]
    assert facts["resumed_from_epoch"] > 0


def test_dataset_and_adapter_are_those_of_a_compile_without_a_fault(
    deployment: Deployment, customer: Customer, teacher: TeacherServer, killed: Killed
) -> None:
    calm = customer.succeeded(customer.compile(long_spec(teacher, "steady-calm")), within_s=240)
    assert training_set(deployment, customer, calm["id"]) == training_set(deployment, customer, killed.compile["id"])
    opened = [kolm_verify.read_kolm(customer.download(row["artifact"])) for row in (calm, killed.compile)]
    assert opened[0].members["adapter.safetensors"] == opened[1].members["adapter.safetensors"]


def test_what_came_of_it_is_a_trusted_artifact_that_runs(
    deployment: Deployment, customer: Customer, killed: Killed
) -> None:
    keyring = customer.api.get("/.well-known/kolm-keys.json").json()
    assert kolm_verify.verify(customer.download(killed.compile["artifact"]), keyring).exit_code == 0
    inputs = {"inputs": ["please give me my money back for the broken lamp"]}
    ran = customer.api.post(f"/v1/artifacts/{killed.compile['artifact']}/run", json=inputs)
    assert ran.status_code == 200, ran.text
    assert ran.json()["outputs"][0]["label"] == "refund_request"
