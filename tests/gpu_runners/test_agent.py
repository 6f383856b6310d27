"""A real agent process against a lease server on loopback: it trains, it is cancelled, killed, cut off and stopped."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.domain.runner_jobs import DistillJob, DistillResult, EvaluateJob, EvaluateResult
from tests.gpu_runners.lease_server import RUNNER_TOKEN, Job, LeaseServer, lease_server
from tests.gpu_runners.small_task import LABELS, Trained, jsonl, task_rows

ROOT = Path(__file__).parents[2]
MakeJob = Callable[..., DistillJob]


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with lease_server() as server:
        yield server


@contextmanager
def agent(server: LeaseServer, *, kinds: str = "distill,evaluate", **env: str) -> Iterator["subprocess.Popen[bytes]"]:
    given = {"KOLM_API_URL": server.url, "KOLM_RUNNER_TOKEN": RUNNER_TOKEN, "KOLM_RUNNER_KINDS": kinds}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "KOLM_RUNNER_WAIT_S": "2"} | given | env
    process = subprocess.Popen([sys.executable, "-m", "gpu_runners.agent"], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def children_of(pid: int) -> list[int]:
    text = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in text.split()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def offer_distill(server: LeaseServer, trained: Trained, *, epochs: int = 2, checkpoint_every_s: float = 0.2) -> Job:
    server.put(trained.dataset)
    train = trained.job.train | {"epochs": epochs}
    job = dataclasses.replace(trained.job, train=train, checkpoint_every_s=checkpoint_every_s)
    return server.offer("job_1", Job(kind="distill", payload=job.to_json()))


def test_a_killed_training_goes_on_from_its_checkpoint_and_ends_with_the_same_bytes(
    server: LeaseServer, trained: Trained
) -> None:
    with agent(server) as process:
        job = offer_distill(server, trained)
        server.wait_until(lambda: job.checkpoint is not None)
        for pid in children_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: len(job.reports) == 2)
        crash, success = job.reports
        assert (crash["ok"], crash["code"], crash["retryable"]) == (False, "runner_killed", True)
        result = DistillResult.from_json(success["result"])
        assert result.adapter_sha256 == trained.result.adapter_sha256
        assert server.blobs[result.adapter_sha256] == trained.blob
        second = [beat for beat in job.heartbeats if beat["attempt"] == 2]
        assert min(beat["step"] for beat in second if beat["step"]) > 1
        # the same agent, and a new child, measure the adapter
        inputs = server.put(jsonl([{"input": row["input"]} for row in task_rows(3, start=10)]))
        evaluate = EvaluateJob(
            base_model=trained.job.base_model,
            base_model_sha256=result.base_model_sha256,
            labels=LABELS,
            adapter_sha256=result.adapter_sha256,
            adapter_config=result.adapter_config,
            temperature=result.temperature,
            inputs_sha256=inputs,
        )
        measured = server.offer("job_2", Job(kind="evaluate", payload=evaluate.to_json()))
        server.wait_until(lambda: bool(measured.reports))
        answers = EvaluateResult.from_json(measured.reports[0]["result"])
        assert len(answers.predictions) == len(answers.confidences) == len(answers.baseline_predictions) == 12
        wrong = sum(p != row["label"] for p, row in zip(answers.predictions, task_rows(3, start=10), strict=True))
        assert wrong <= 2
        assert len(answers.latency_us) == 12


def test_a_cancelled_training_is_dead_within_two_seconds_and_said_so(server: LeaseServer, trained: Trained) -> None:
    with agent(server) as process:
        job = offer_distill(server, trained, epochs=200)
        server.wait_until(lambda: bool(job.heartbeats) and job.heartbeats[-1]["step"] > 0)
        (child,) = children_of(process.pid)
        job.is_cancelled = True
        n_before, started = len(job.heartbeats), time.monotonic()
        server.wait_until(lambda: len(job.heartbeats) > n_before)
        asked = time.monotonic()
        server.wait_until(lambda: not is_alive(child))
        assert time.monotonic() - asked < 2
        assert time.monotonic() - started < 3
        server.wait_until(lambda: bool(job.reports))
        assert (job.reports[0]["code"], job.reports[0]["retryable"]) == ("canceled", False)


def test_a_lost_lease_kills_the_training_and_reports_nothing(server: LeaseServer, trained: Trained) -> None:
    with agent(server) as process:
        job = offer_distill(server, trained, epochs=200)
        server.wait_until(lambda: bool(job.heartbeats) and job.heartbeats[-1]["step"] > 0)
        (child,) = children_of(process.pid)
        job.is_gone = True
        server.wait_until(lambda: not is_alive(child), within_s=4)
        assert job.reports == []
        assert process.poll() is None


def test_a_short_loss_of_the_network_is_survived_and_a_long_one_ends_the_training(
    server: LeaseServer, trained: Trained
) -> None:
    with agent(server) as process:
        job = offer_distill(server, trained, epochs=200)
        server.wait_until(lambda: bool(job.heartbeats) and job.heartbeats[-1]["step"] > 0)
        (child,) = children_of(process.pid)
        server.is_down = True
        time.sleep(0.7)
        server.is_down = False
        n_beats = len(job.heartbeats)
        server.wait_until(lambda: len(job.heartbeats) > n_beats)
        assert is_alive(child)
        server.is_down = True
        server.wait_until(lambda: not is_alive(child), within_s=6)
        server.is_down = False
        assert job.reports == []


def test_sigterm_hands_over_a_checkpoint_and_gives_the_job_back(server: LeaseServer, trained: Trained) -> None:
    with agent(server) as process:
        job = offer_distill(server, trained, epochs=200, checkpoint_every_s=1e9)
        server.wait_until(lambda: bool(job.heartbeats) and job.heartbeats[-1]["step"] > 0)
        (child,) = children_of(process.pid)
        process.terminate()
        assert process.wait(15) == 0
        assert (job.reports[0]["code"], job.reports[0]["retryable"]) == ("runner_stopping", True)
        assert job.checkpoint is not None
        assert job.checkpoint in server.blobs
        assert not is_alive(child)


def test_the_child_dies_with_a_killed_agent(server: LeaseServer, trained: Trained) -> None:
    with agent(server) as process:
        job = offer_distill(server, trained, epochs=200)
        server.wait_until(lambda: bool(job.heartbeats) and job.heartbeats[-1]["step"] > 0)
        (child,) = children_of(process.pid)
        process.kill()
        process.wait()
        server.wait_until(lambda: not is_alive(child), within_s=3)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"base_model": "../../etc"}, "unknown_base"),
        ({"labels": ["a"]}, "invalid_dataset"),
        ({"dataset_sha256": "0" * 64}, "blob_not_found"),
        ({"surprise": 1}, "invalid_job"),
    ],
)
def test_a_job_that_cannot_be_done_is_reported_with_its_reason(
    server: LeaseServer, trained: Trained, change: dict[str, object], code: str
) -> None:
    with agent(server):
        server.put(trained.dataset)
        job = server.offer("job_1", Job(kind="distill", payload=trained.job.to_json() | change))
        server.wait_until(lambda: bool(job.reports))
        assert (job.reports[0]["ok"], job.reports[0]["code"], job.reports[0]["retryable"]) == (False, code, False)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"KOLM_RUNNER_TOKEN": ""}, "KOLM_RUNNER_TOKEN"),
        ({"KOLM_RUNNER_KINDS": "distil"}, "KOLM_RUNNER_KINDS"),
        ({"KOLM_RUNNER_MODELS": "many"}, "KOLM_RUNNER_MODELS"),
    ],
)
def test_a_wrong_setting_ends_the_agent_with_one_sentence(env: dict[str, str], named: str) -> None:
    environment = os.environ | {"KOLM_API_URL": "http://127.0.0.1:1", "KOLM_RUNNER_TOKEN": "x"} | env
    done = subprocess.run(
        [sys.executable, "-m", "gpu_runners.agent"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
