"""A real agent process against a lease server on loopback: it trains, it is cancelled, killed, cut off and stopped."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from backend.domain.jobs.runner_jobs import (
    DistillJob,
    DistillResult,
    EvaluateJob,
    EvaluateResult,
    InferJob,
    InferResult,
)
from gpu_runners.agent import __main__ as agent_process
from gpu_runners.config import BadSetting, read_config
from tests.backend.domain.artifact.tiny_kolm import OTHER_KEY, keyring, receipts, small_kolm
from tests.gpu_runners.agent.lease_server import RUNNER_TOKEN, Job, LeaseServer, lease_server
from tests.gpu_runners.small_task import LABELS, Trained, jsonl, kolm_of, task_rows

ROOT = Path(__file__).parents[3]
MakeJob = Callable[..., DistillJob]


@pytest.fixture(scope="module")
def server() -> Iterator[LeaseServer]:
    with lease_server() as server:
        yield server


@pytest.fixture(scope="module")
def running(server: LeaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[bytes]"]:
    """One agent for all the tests that must leave it alive."""
    keys = tmp_path_factory.mktemp("keys") / "keyring.json"
    keys.write_text(json.dumps(keyring()))
    with agent(server, kinds="distill,evaluate,infer", KOLM_KEYRING=str(keys), KOLM_OUTAGE_S="3") as process:
        yield process
        assert process.poll() is None


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
    except (FileNotFoundError, ProcessLookupError):  # reaped before the open, or between it and the read
        return False
    return state != "Z"


def offer_distill(server: LeaseServer, trained: Trained, *, epochs: int = 2, checkpoint_every_s: float = 0.2) -> Job:
    server.put(trained.dataset)
    train = trained.job.train | {"epochs": epochs}
    job = dataclasses.replace(trained.job, train=train, checkpoint_every_s=checkpoint_every_s)
    return server.offer(f"job_{len(server.jobs)}", Job(kind="distill", payload=job.to_json()))


def wait_for_training(server: LeaseServer, process: "subprocess.Popen[bytes]", job: Job) -> int:
    """The pid of the child that is at work on `job`."""
    server.wait_until(lambda: bool(job.heartbeats) and job.heartbeats[-1]["step"] > 0)
    (child,) = children_of(process.pid)
    return child


@pytest.mark.nightly
def test_a_killed_training_goes_on_from_its_checkpoint_and_ends_with_the_same_bytes(
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained
) -> None:
    job = offer_distill(server, trained)
    server.wait_until(lambda: job.checkpoint is not None)
    for pid in children_of(running.pid):
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
        rules_sha256="",
    )
    payload = evaluate.to_json()
    del payload["rules_sha256"]  # as the release before queued it
    measured = server.offer("measure", Job(kind="evaluate", payload=payload))
    server.wait_until(lambda: bool(measured.reports))
    answers = EvaluateResult.from_json(measured.reports[0]["result"])
    assert len(answers.predictions) == len(answers.confidences) == len(answers.baseline_predictions) == 12
    wrong = sum(p != row["label"] for p, row in zip(answers.predictions, task_rows(3, start=10), strict=True))
    assert wrong <= 2
    assert len(answers.latency_us) == 12


@pytest.mark.nightly
def test_a_stopped_training_is_ended_and_goes_on_from_its_checkpoint(trained: Trained) -> None:
    """T4, with a shorter patience than the minute of the default: before, the agent's heartbeats kept its lease for
    ever."""
    with lease_server() as server, agent(server, KOLM_RUNNER_STILL_S="4") as process:
        job = offer_distill(server, trained)
        server.wait_until(lambda: job.checkpoint is not None)
        for pid in children_of(process.pid):
            os.kill(pid, signal.SIGSTOP)
        server.wait_until(lambda: len(job.reports) == 2, within_s=120)
    stalled, success = job.reports
    assert (stalled["ok"], stalled["code"], stalled["retryable"]) == (False, "runner_stalled", True)
    assert DistillResult.from_json(success["result"]).adapter_sha256 == trained.result.adapter_sha256
    second = [beat for beat in job.heartbeats if beat["attempt"] == 2]
    assert min(beat["step"] for beat in second if beat["step"]) > 1


def test_a_cancelled_training_is_dead_soon_and_said_so(
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained
) -> None:
    job = offer_distill(server, trained, epochs=200)
    child = wait_for_training(server, running, job)
    job.is_cancelled = True
    n_before = len(job.heartbeats)
    server.wait_until(lambda: len(job.heartbeats) > n_before)
    server.wait_until(lambda: not is_alive(child))
    server.wait_until(lambda: bool(job.reports))
    assert (job.reports[0]["code"], job.reports[0]["retryable"]) == ("canceled", False)


@pytest.mark.nightly
def test_answers_do_not_wait_for_a_training(
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained
) -> None:
    training = offer_distill(server, trained, epochs=200)
    wait_for_training(server, running, training)
    infer = InferJob(artifact_sha256=server.put(kolm_of(trained)), inputs=["where is my parcel 4 number 7"])
    first = server.offer("infer_1", Job(kind="infer", payload=infer.to_json()))
    server.wait_until(lambda: bool(first.reports))
    second = server.offer("infer_2", Job(kind="infer", payload=infer.to_json()))
    server.wait_until(lambda: bool(second.reports))
    assert training.reports == []
    training.is_cancelled = True
    cold, warm = (InferResult.from_json(job.reports[0]["result"]) for job in (first, second))
    assert [row["label"] for row in cold.outputs] == [row["label"] for row in warm.outputs] == ["delivery"]
    assert (cold.load_ms > 0, warm.load_ms) == (True, 0)
    server.wait_until(lambda: bool(training.reports))


def test_an_artifact_that_nobody_vouches_for_is_not_run(
    server: LeaseServer, running: "subprocess.Popen[bytes]"
) -> None:
    stranger = small_kolm(OTHER_KEY, **receipts(key=OTHER_KEY))
    for name, data, code in (("a", stranger, "artifact_untrusted"), ("b", stranger[:-1], "artifact_altered")):
        infer = InferJob(artifact_sha256=server.put(data), inputs=["x"])
        job = server.offer(name, Job(kind="infer", payload=infer.to_json()))
        server.wait_until(lambda job=job: bool(job.reports))  # type: ignore[misc]
        assert job.reports[0]["code"] == code


@pytest.mark.nightly
def test_a_lost_lease_kills_the_training_and_reports_nothing(
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained
) -> None:
    job = offer_distill(server, trained, epochs=200)
    child = wait_for_training(server, running, job)
    job.is_gone = True
    server.wait_until(lambda: not is_alive(child), within_s=4)
    assert job.reports == []
    assert running.poll() is None


@pytest.mark.nightly
def test_a_short_loss_of_the_network_is_survived_and_a_long_one_ends_the_training(
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained
) -> None:
    job = offer_distill(server, trained, epochs=200)
    child = wait_for_training(server, running, job)
    server.is_down = True
    time.sleep(0.7)
    server.is_down = False
    n_beats = len(job.heartbeats)
    server.wait_until(lambda: len(job.heartbeats) > n_beats)
    assert is_alive(child)
    server.is_down = True
    time.sleep(2)
    assert is_alive(child), "a lease is over, an outage is not"
    server.wait_until(lambda: not is_alive(child), within_s=10)
    server.is_down = False
    assert job.reports == []


@pytest.mark.nightly
def test_a_training_that_ends_while_the_server_is_away_is_reported_when_it_is_back(trained: Trained) -> None:
    """Its checkpoints too: the last one that was made meanwhile is handed over."""
    with lease_server() as server, agent(server, KOLM_OUTAGE_S="60") as process:
        job = offer_distill(server, trained, epochs=200)
        wait_for_training(server, process, job)
        server.is_down = True
        before = job.checkpoint
        time.sleep(3 * job.lease_s)
        server.is_down = False
        server.wait_until(lambda: job.checkpoint not in (None, before), within_s=20)
        assert (job.attempt, job.reports) == (1, [])
        job.is_cancelled = True
        server.wait_until(lambda: bool(job.reports))
        short = offer_distill(server, trained)
        wait_for_training(server, process, short)
        server.is_down = True
        time.sleep(3 * short.lease_s)  # two epochs take less
        server.is_down = False
        server.wait_until(lambda: bool(short.reports))
        assert (short.attempt, short.reports[0]["ok"]) == (1, True)
        result = DistillResult.from_json(short.reports[0]["result"])
        assert server.blobs[result.adapter_sha256] == trained.blob


@pytest.mark.nightly
def test_sigterm_hands_over_a_checkpoint_and_gives_the_job_back(trained: Trained) -> None:
    with lease_server() as server, agent(server) as process:
        job = offer_distill(server, trained, epochs=200, checkpoint_every_s=1e9)
        child = wait_for_training(server, process, job)
        process.terminate()
        assert process.wait(15) == 0
        assert (job.reports[0]["code"], job.reports[0]["retryable"]) == ("runner_stopping", True)
        assert job.checkpoint is not None
        assert job.checkpoint in server.blobs
        assert not is_alive(child)


@pytest.mark.nightly
def test_a_training_that_is_to_give_way_hands_over_a_checkpoint_and_later_ends_with_the_same_bytes(
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained
) -> None:
    job = offer_distill(server, trained, checkpoint_every_s=1e9)
    child = wait_for_training(server, running, job)
    job.is_preempted = True
    server.wait_until(lambda: len(job.reports) == 2)
    back, success = job.reports
    assert (back["code"], back["retryable"]) == ("preempted", True)
    last = [beat for beat in job.heartbeats if beat["attempt"] == 1][-1]
    assert last["checkpoint_sha256"] in server.blobs
    assert last["checkpoint_step"] > 0
    second = [beat["step"] for beat in job.heartbeats if beat["attempt"] == 2 and beat["step"]]
    assert min(second, default=last["checkpoint_step"] + 1) > last["checkpoint_step"]
    assert server.blobs[DistillResult.from_json(success["result"]).adapter_sha256] == trained.blob
    assert children_of(running.pid) == [child], "the same process took it up again"


@pytest.mark.nightly
def test_what_makes_no_checkpoint_works_on_when_it_is_to_give_way(
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained
) -> None:
    adapter = server.put(trained.blob)
    inputs = server.put(jsonl([{"input": row["input"]} for row in task_rows(3, start=10)]))
    evaluate = EvaluateJob(
        base_model=trained.job.base_model,
        base_model_sha256=trained.result.base_model_sha256,
        labels=LABELS,
        adapter_sha256=adapter,
        adapter_config=trained.result.adapter_config,
        temperature=trained.result.temperature,
        inputs_sha256=inputs,
    )
    job = server.offer("measure", Job(kind="evaluate", payload=evaluate.to_json(), is_preempted=True))
    server.wait_until(lambda: bool(job.reports))
    assert job.reports[0]["ok"]


@pytest.mark.nightly
def test_a_fault_of_the_runners_own_disk_costs_an_attempt_and_not_the_lane(trained: Trained, tmp_path: Path) -> None:
    """Before, the lane's thread ended: the runner looked alive and took no job any more."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    with lease_server() as server, agent(server, kinds="distill", TMPDIR=str(folder)) as process:
        server.wait_until(lambda: bool(children_of(process.pid)))
        folder.rename(away := tmp_path / "away")
        job = offer_distill(server, trained)
        server.wait_until(lambda: bool(job.reports))
        away.rename(folder)
        server.wait_until(lambda: len(job.reports) == 2, within_s=120)
    fault, success = job.reports
    assert (fault["ok"], fault["code"], fault["retryable"]) == (False, "runner_crashed", True)
    assert "FileNotFoundError" in fault["message"]
    assert str(tmp_path) not in fault["message"]
    assert success["ok"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_runner_whose_lane_cannot_begin_ends_to_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it lived on without the lane."""

    def broken(*_: object) -> NoReturn:
        raise OSError("no more processes")

    monkeypatch.setattr(agent_process, "_training", broken)
    environ = {"KOLM_API_URL": "http://127.0.0.1:1", "KOLM_RUNNER_TOKEN": RUNNER_TOKEN, "KOLM_RUNNER_KINDS": "distill"}
    config = read_config(environ)
    assert not agent_process.run(config, threading.Event())


@pytest.mark.nightly
def test_the_child_dies_with_a_killed_agent(trained: Trained) -> None:
    with lease_server() as server, agent(server) as process:
        job = offer_distill(server, trained, epochs=200)
        child = wait_for_training(server, process, job)
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
    server: LeaseServer, running: "subprocess.Popen[bytes]", trained: Trained, change: dict[str, object], code: str
) -> None:
    server.put(trained.dataset)
    job = server.offer(f"job_{len(server.jobs)}", Job(kind="distill", payload=trained.job.to_json() | change))
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
def test_a_wrong_setting_is_named_in_one_sentence(env: dict[str, str], named: str) -> None:
    with pytest.raises(BadSetting, match=named) as wrong:
        read_config({"KOLM_API_URL": "http://127.0.0.1:1", "KOLM_RUNNER_TOKEN": "x"} | env)
    assert "\n" not in str(wrong.value)


def test_a_wrong_setting_ends_the_agent_with_that_sentence() -> None:
    environment = os.environ | {"KOLM_API_URL": "http://127.0.0.1:1", "KOLM_RUNNER_TOKEN": ""}
    done = subprocess.run(
        [sys.executable, "-m", "gpu_runners.agent"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "KOLM_RUNNER_TOKEN" in done.stderr
    assert done.stderr.count("\n") == 1
