"""What an agent does with files that are large, that nobody takes, or for which there is no room: against a lease
server on loopback, with a child that is played by its events."""

import itertools
import os
import socket
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from backend.domain.jobs.blob_transfers import PART_BYTES
from backend.domain.jobs.runner_jobs import Claim
from gpu_runners.agent.isolation import Child
from gpu_runners.agent.lease_client import RunnerClient
from gpu_runners.agent.training_worker import Lease, work_on
from gpu_runners.http import Unreachable
from tests.gpu_runners.agent.lease_server import RUNNER_TOKEN, Job, LeaseServer, lease_server

STEP = {"event": "progress", "n_steps": 9, "loss": 0.5, "eta_s": 1.0, "note": "epoch 1"}


class PlayedChild:
    """The events of a training, each when the one before was taken; a callable is asked until it gives one."""

    def __init__(self, *events: Any) -> None:
        self.events, self.handed_over = list(events), list[float]()
        self.folder = Path()

    def submit(self, *, folder: Path, **_: Any) -> None:
        self.folder = folder

    def cpu_s(self) -> None:
        return None

    def note_handed_over(self, took_s: float) -> None:
        self.handed_over.append(took_s)

    def next_event(self, *, timeout_s: float) -> dict[str, Any] | None:
        event = self.events[0](self) if callable(self.events[0]) else self.events[0]
        if event is None:
            time.sleep(timeout_s)
            return None
        self.events.pop(0)
        return cast("dict[str, Any]", event)

    def ask_to_stop(self) -> None: ...

    def kill(self) -> None: ...


def written(name: str, n_bytes: int, **event: Any) -> Any:
    def make(child: PlayedChild) -> dict[str, Any]:
        path = child.folder / name
        with path.open("wb") as file:
            file.write(os.urandom(16))
            file.truncate(n_bytes)  # written at once: this is the agent's own thread
        return {"path": str(path)} | event

    return make


def checkpoint(n_bytes: int, *, step: int) -> Any:
    return written(f"checkpoint-{step}", n_bytes, event="checkpoint", at_step=step)


def done(n_bytes: int = 100) -> Any:
    def make(child: PlayedChild) -> dict[str, Any]:
        path = written("adapter", n_bytes)(child)["path"]
        return {"event": "done", "result": {"n": 1}, "blobs": [path]}

    return make


def after_handover(n: int) -> Any:
    """Progress, once so many checkpoints have been dealt with."""
    return lambda child: STEP | {"step": 8} if len(child.handed_over) >= n else None


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with lease_server() as server:
        yield server


def work(server: LeaseServer, *events: Any, lease_s: float = 1.5, outage_s: float = 10.0) -> tuple[Job, PlayedChild]:
    """One job from its claim to its report."""
    dataset = server.put(b"{}")
    payload = {"dataset_sha256": dataset, "base_model": "tiny"}
    job = server.offer("job_1", Job(kind="distill", payload=payload, lease_s=lease_s))
    child = PlayedChild(*events)
    with RunnerClient(api_url=server.url, token=RUNNER_TOKEN, name="r1") as client:
        claim = cast(Claim, client.claim(["distill"], wait_s=5))
        lease = Lease(job=client.job(claim), claim=claim, outage_s=outage_s)
        work_on(claim, lease=lease, child=cast(Child, child), base_dir=None, stopping=lambda: False)
    return job, child


def test_a_large_checkpoint_goes_up_in_parts_while_the_training_goes_on(server: LeaseServer) -> None:
    n_bytes = 3 * PART_BYTES + 5
    job, child = work(server, STEP | {"step": 4}, checkpoint(n_bytes, step=4), after_handover(1), done())
    (kept,) = [data for data in server.blobs.values() if len(data) == n_bytes]
    beat = next(beat for beat in job.heartbeats if beat["checkpoint_sha256"])
    assert server.blobs[beat["checkpoint_sha256"]] == kept
    assert (beat["checkpoint_step"], beat["unkept"]) == (4, "")
    assert job.reports == [{"ok": True, "result": {"n": 1}}]
    assert len(child.handed_over) == 1


@pytest.mark.nightly
def test_heartbeats_go_on_while_an_adapter_goes_up_for_longer_than_a_lease(server: LeaseServer) -> None:
    """Before, one request had to be through within a third of the lease, or no checkpoint ever was."""
    server.part_s = 1.0
    job, _ = work(server, STEP | {"step": 9}, done(6 * PART_BYTES), lease_s=4.0)
    times = [beat["at"] for beat in job.heartbeats]
    assert max(b - a for a, b in itertools.pairwise(times)) < 4
    assert times[-1] - times[0] > 4
    assert job.reports[0]["ok"]


def test_an_upload_that_broke_off_goes_on_where_it_did(server: LeaseServer) -> None:
    n_taken, parts = 0, list[str]()
    original = server.RequestHandlerClass.do_PUT  # type: ignore[attr-defined]

    def breaking(handler: Any) -> None:
        nonlocal n_taken
        parts.append(handler.path.rpartition("/")[2])
        n_taken += 1
        if n_taken == 3:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)  # in the middle of the part's bytes
            return
        original(handler)

    handler = type("Breaking", (server.RequestHandlerClass,), {"do_PUT": breaking})
    server.RequestHandlerClass = handler  # type: ignore[misc]
    job, _ = work(server, done(4 * PART_BYTES))
    assert job.reports[0]["ok"]
    assert parts == ["0", "1", "2", "2", "3"]


@pytest.mark.parametrize(("status", "reason"), [(413, "too_large"), (507, "store_full"), (403, "refused")])
def test_a_checkpoint_that_is_not_taken_is_said_once_and_the_training_goes_on(
    server: LeaseServer, status: int, reason: str
) -> None:
    server.refuses["/uploads/"] = status
    n_bytes = PART_BYTES + 1
    job, _ = work(
        server,
        STEP | {"step": 2},
        checkpoint(n_bytes, step=2),
        after_handover(1),
        checkpoint(n_bytes, step=3),
        after_handover(2),
        done(),
    )
    said = [(beat["unkept"], beat["unkept_bytes"]) for beat in job.heartbeats if beat["unkept"]]
    assert said == [(reason, n_bytes)]
    assert job.reports == [{"ok": True, "result": {"n": 1}}]


def test_a_checkpoint_that_the_runners_disk_did_not_take_is_said(server: LeaseServer) -> None:
    lost = {"event": "checkpoint_failed", "message": "No space left on device", "n_bytes": 5}
    beats = lambda child: (STEP | {"step": 8}) if any(b["unkept"] for b in server.jobs["job_1"].heartbeats) else None  # noqa: E731
    job, _ = work(server, STEP | {"step": 2}, lost, beats, done())
    assert [beat["unkept"] for beat in job.heartbeats if beat["unkept"]] == ["runner_disk"]
    assert job.reports[0]["ok"]


@pytest.mark.parametrize(
    ("status", "code", "is_retryable", "sentence"),
    [
        (413, "adapter_too_large", False, "KOLM_MAX_BLOB_BYTES"),
        (403, "adapter_refused", False, "not taken"),
        (507, "blob_store_full", True, "make room"),
        (503, "blob_store_unavailable", True, "gave or took nothing"),
    ],
)
def test_an_adapter_that_is_not_taken_is_how_the_job_failed(
    server: LeaseServer, status: int, code: str, is_retryable: bool, sentence: str
) -> None:
    """Before, the job was dropped, and ran out with its lease four times."""
    server.refuses["/uploads/"] = status
    job, _ = work(server, done(PART_BYTES + 1), outage_s=1.0)
    (report,) = job.reports
    assert (report["ok"], report["code"], report["retryable"]) == (False, code, is_retryable)
    assert sentence in report["message"]


def test_a_result_that_the_server_does_not_take_is_a_reported_failure_too(server: LeaseServer) -> None:
    say = server.RequestHandlerClass.do_POST  # type: ignore[attr-defined]
    n_reports = 0

    def strict(handler: Any) -> None:
        nonlocal n_reports
        if handler.path.endswith("/report"):
            n_reports += 1
            if n_reports == 1:
                handler.rfile.read(int(handler.headers["Content-Length"]))
                handler._say(400)
                return
        say(handler)

    server.RequestHandlerClass = type("Strict", (server.RequestHandlerClass,), {"do_POST": strict})  # type: ignore[misc]
    job, _ = work(server, done())
    assert [report["code"] for report in job.reports] == ["runner_refused"]


@pytest.mark.parametrize("n_bytes", [300_000_000, pytest.param(1_300_000_000, marks=pytest.mark.nightly)])
def test_a_large_file_never_lies_in_memory(server: LeaseServer, tmp_path: Path, n_bytes: int) -> None:
    """Both sides of the wire are in this process: each holds a few parts, with what sockets copy of them."""
    server.discards = True
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(n_bytes)
    server.offer("job_1", Job(kind="distill", payload={"dataset_sha256": server.put(b"x")}))
    with RunnerClient(api_url=server.url, token=RUNNER_TOKEN, name="r1") as client:
        claim = cast(Claim, client.claim(["distill"], wait_s=5))
        own = psutil.Process()
        before = own.memory_info().rss
        tracemalloc.start()
        try:
            client.job(claim).put_file(path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    print(f"{n_bytes:,}: Python held {peak / 1e6:.0f} MB, RSS {(own.memory_info().rss - before) / 1e6:+.0f} MB")
    assert peak < 12 * PART_BYTES


def test_an_upload_that_nobody_wants_any_more_stops_between_two_parts(server: LeaseServer, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(4 * PART_BYTES)
    server.offer("job_1", Job(kind="distill", payload={"dataset_sha256": server.put(b"x")}))
    wanted = iter((True, True, False))
    with RunnerClient(api_url=server.url, token=RUNNER_TOKEN, name="r1") as client:
        claim = cast(Claim, client.claim(["distill"], wait_s=5))
        with pytest.raises(Unreachable):
            client.job(claim).put_file(path, is_wanted=lambda: next(wanted))
    (parts,) = server.parts.values()
    assert len(parts) == 2
