"""What a runner says of itself, and a look at a base that it was asked for, over a real lease server."""

import threading
import time
from pathlib import Path

import pytest

from backend.domain.jobs.base_checks import CheckBaseJob, CheckBaseResult, read_report
from backend.domain.jobs.runner_jobs import Claim, RunnerJobKind
from gpu_runners.agent.__main__ import JobLoop, Prepared
from gpu_runners.agent.base_worker import Machine, look
from gpu_runners.agent.device_probe import main_memory, probe
from gpu_runners.agent.lease_client import RunnerClient
from gpu_runners.config import RunnerConfig, read_config
from gpu_runners.models.bases import MINILM, TINY
from tests.gpu_runners.agent.lease_server import RUNNER_TOKEN, Job, lease_server


def config_for(url: str, **env: str) -> RunnerConfig:
    return read_config({"KOLM_API_URL": url, "KOLM_RUNNER_TOKEN": RUNNER_TOKEN, "KOLM_RUNNER_KINDS": "distill", **env})


def test_a_machine_tells_what_it_holds_and_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOLM_BASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "bases" / "owner" / "model").mkdir(parents=True)
    (tmp_path / "bases" / "owner" / "model" / "config.json").write_text("{}")
    report = Machine(config_for("http://127.0.0.1:9", KOLM_BASE_DIR=str(tmp_path / "bases"))).report()
    assert {MINILM, TINY, "owner/model"} <= set(report.bases)
    assert (report.kinds, report.is_offline) == (["distill", "check_base"], True)
    assert report.room_bytes is None, "there is no cache yet"
    (tmp_path / "cache").mkdir()
    assert (Machine(config_for("http://127.0.0.1:9")).report().room_bytes or 0) > 0
    assert read_report(report.to_json()) == report


def test_a_device_is_named_and_its_memory_is_within_the_machines() -> None:
    device = probe()
    assert device["device"] in ("cpu", "cuda")
    if device["device"] == "cpu":
        assert device["memory_bytes"] == main_memory()
    assert (main_memory() or 0) > 10**8


def test_a_job_is_claimed_with_a_report_and_answered() -> None:
    with lease_server() as server:
        wanted = CheckBaseJob(base_model=MINILM, kind="encoder")
        job = server.offer("job_0", Job(kind="check_base", payload=wanted.to_json()))
        with RunnerClient(api_url=server.url, token=RUNNER_TOKEN, name="r") as client:
            claim = client.claim(["check_base"], wait_s=1, about=Machine(config_for(server.url)).report())
            assert claim is not None
            began = time.monotonic()
            look(claim, job=client.job(claim), base_dir=None)
        assert time.monotonic() - began < 60
        (report,) = job.reports
        result = CheckBaseResult.from_json(report["result"])
        assert (report["ok"], result.code, result.is_here) == (True, "", True)
        assert result.n_parameters > 20_000_000


def test_a_job_that_cannot_be_read_fails() -> None:
    with lease_server() as server:
        job = server.offer("job_0", Job(kind="check_base", payload={"from_the_future": 1}))
        with RunnerClient(api_url=server.url, token=RUNNER_TOKEN, name="r") as client:
            claim = client.claim(["check_base"], wait_s=1)
            assert claim is not None
            look(claim, job=client.job(claim), base_dir=None)
        assert [report["code"] for report in job.reports] == ["invalid_job"]


def test_a_fault_at_a_look_keeps_nobody_waiting() -> None:
    """Before, the loop slept for the length of a lease: one base stopped every preflight."""
    claims: list[str] = []

    def handle(client: RunnerClient, claim: Claim) -> None:
        claims.append(claim.job_id)
        if len(claims) == 1:
            raise RuntimeError("a fault of this runner")
        client.job(claim).report_success({})

    stop = threading.Event()
    with lease_server() as server:
        job = server.offer("job_0", Job(kind="check_base", payload={}, lease_s=60))
        config = config_for(server.url, KOLM_RUNNER_WAIT_S="0")
        loop = JobLoop(
            config,
            kinds=[RunnerJobKind.CHECK_BASE],
            stop=stop,
            name="look",
            prepare=lambda *_: Prepared(handle=handle),
        )
        loop.start()
        try:
            server.wait_until(lambda: len(job.reports) == 2, within_s=30)
        finally:
            stop.set()
            loop.finish(within_s=5)
    fault, success = job.reports
    assert (fault["code"], success["ok"]) == ("runner_crashed", True)
