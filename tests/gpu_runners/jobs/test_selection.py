"""Select jobs: real texts through the real MiniLM, in this process and in the child of a real agent."""

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.domain.answers.candidates import text_key
from backend.domain.jobs.runner_jobs import ROWS_OFFSET, SelectJob, SelectStage
from backend.domain.jobs.runner_results import select_result
from backend.domain.selection.linkage import active_clusters, nn_chain
from backend.domain.selection.select import select
from gpu_runners.agent.lease_client import LeaseLost, RunnerClient
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.jobs.selection import select_files
from gpu_runners.models.text_embedding import load_text_embedder
from tests.gpu_runners.agent.lease_server import RUNNER_TOKEN, Job, LeaseServer, lease_server
from tests.gpu_runners.agent.test_agent import agent, children_of, is_alive
from tests.gpu_runners.small_task import task_rows
from workers.embedding.sentence import load_embedder

TEXTS = [row["input"] for row in task_rows(10)]
SCORES = [((7 * i) % 13) / 13 for i in range(len(TEXTS))]
IDS = [f"row-{i}" for i in range(len(TEXTS))]
OPTIONS = {"method": "two_step", "score_floor": 0.25, "stratify": True}


def columns_of(ids: list[str], scores: list[float] | None, labels: list[str] | None = None) -> bytes:
    return json.dumps({"selection": "sel_1", "ids": ids, "scores": scores, "labels": labels}).encode()


def texts_of(texts: list[str]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in ["sel_1", *texts]).encode()


def rows_of(rows: NDArray[np.float32]) -> bytes:
    return UUID(int=1).bytes + rows.astype("<f4").tobytes()


def job_of(n: int, *, width: int, k: int, options: dict[str, Any] = OPTIONS) -> SelectJob:
    return SelectJob(columns_sha256="c", rows_sha256="r", n=n, width=width, k=k, options=options)


def run(folder: Path, job: SelectJob, columns: bytes, rows: bytes, **more: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The checked result and the progress that was told."""
    (folder / "columns").write_bytes(columns)
    (folder / "rows").write_bytes(rows)
    events: list[dict[str, Any]] = []
    given = {"base_dir": None, "emit": events.append, "should_stop": lambda: False} | more
    result = select_files(job, folder=folder, **given)["result"]
    return select_result(json.loads(json.dumps(result)), n=job.n, k=job.k, is_text=job.width == 0), events


@pytest.fixture(scope="module")
def rows() -> NDArray[np.float32]:
    return load_text_embedder(n_texts=len(TEXTS)).embed(TEXTS)


def test_the_runners_rows_are_those_of_the_pipelines_embedder(rows: NDArray[np.float32]) -> None:
    pipeline = load_embedder()
    np.testing.assert_allclose(rows, pipeline.embed(TEXTS), atol=1e-5)
    assert load_text_embedder(n_texts=1).identity == pipeline.identity


def test_texts_are_embedded_and_selected_as_the_domain_does_it(tmp_path: Path, rows: NDArray[np.float32]) -> None:
    result, events = run(tmp_path, job_of(40, width=0, k=8), columns_of(IDS, SCORES), texts_of(TEXTS))
    keys = [f"{text_key(text)} {name}" for text, name in zip(TEXTS, IDS, strict=True)]
    expected = select(rows, SCORES, keys, k=8, **OPTIONS)
    assert tuple(result.picks) == expected.picks
    assert result.report["picks_sha256"] == expected.report.picks_sha256
    assert tuple(result.cluster_of) == expected.report.cluster_of
    assert sorted(result.floor_dropped) == sorted(expected.report.floor_dropped)
    assert "cluster_of" not in result.report
    assert "K target: 8" in result.log
    pipeline = load_embedder()
    assert (result.embedder, result.n_tokens) == (pipeline.identity, pipeline.count_tokens(TEXTS))
    assert events[0] == {
        "event": "progress",
        "step": 0,
        "n_steps": 40,
        "loss": None,
        "eta_s": None,
        "note": "embedding",
    }
    assert {event["note"] for event in events} <= set(SelectStage)


def test_embeddings_are_selected_from_as_they_are_and_cost_no_tokens(tmp_path: Path) -> None:
    given = np.random.default_rng(3).normal(size=(60, 5)).astype(np.float32)
    scores = np.arange(60.0).tolist()
    ids = [str(i) for i in range(60)]
    result, _ = run(tmp_path, job_of(60, width=5, k=60, options={}), columns_of(ids, scores), rows_of(given))
    assert result.picks == list(range(59, -1, -1)), "K of n rows are all of them, by score"
    assert (result.embedder, result.n_tokens) == ("", 0)
    assert (tmp_path / "rows").stat().st_size == ROWS_OFFSET + given.nbytes


def test_without_scores_all_are_equal_and_with_labels_k_is_shared_out(tmp_path: Path) -> None:
    given = np.random.default_rng(4).normal(size=(40, 6)).astype(np.float32)
    labels = ["a"] * 30 + ["b"] * 10
    columns = columns_of([str(i) for i in range(40)], None, labels)
    result, _ = run(tmp_path, job_of(40, width=6, k=8, options={"stratify": True}), columns, rows_of(given))
    kept = [labels[i] for i in result.picks]
    assert (kept.count("a"), kept.count("b")) == (6, 2)
    assert [stratum["label"] for stratum in result.report["strata"]] == ["a", "b"]


def test_equal_texts_are_paid_for_once_and_told_apart_by_id(tmp_path: Path) -> None:
    texts = [TEXTS[0]] * 3 + TEXTS[1:4]
    scores = [1.0] * 3 + [0.0] * 3
    ids = ["c", "a", "b", "x", "y", "z"]
    job = job_of(6, width=0, k=1, options={"method": "top_k"})
    result, _ = run(tmp_path, job, columns_of(ids, scores), texts_of(texts))
    assert ids[result.picks[0]] == "a"
    assert result.n_tokens == load_embedder().count_tokens(TEXTS[:4])


def test_what_the_domain_refuses_fails_with_its_code_and_is_not_tried_again(tmp_path: Path) -> None:
    given, job = np.eye(2, dtype=np.float32), job_of(2, width=2, k=1, options={"min_distance": 5})
    with pytest.raises(JobFailed) as caught:
        run(tmp_path, job, columns_of(["a", "b"], None), rows_of(given))
    assert (caught.value.code, caught.value.retryable) == ("invalid_input", False)


def test_a_runner_that_is_to_stop_gives_the_job_back(tmp_path: Path) -> None:
    job = job_of(40, width=0, k=8)
    with pytest.raises(JobStopped):
        run(tmp_path, job, columns_of(IDS, SCORES), texts_of(TEXTS), should_stop=lambda: True)


def test_every_stage_that_the_domain_names_is_one_that_the_api_shows() -> None:
    assert {nn_chain.STAGE, active_clusters.SEARCH_STAGE} <= set(SelectStage)


def test_an_input_is_saved_as_it_comes_and_only_when_it_is_the_one_that_was_named(tmp_path: Path) -> None:
    data, path = os.urandom(3_500_000), tmp_path / "rows"
    with lease_server() as server, RunnerClient(api_url=server.url, token=RUNNER_TOKEN, name="r") as client:
        digest = server.put(data)
        offered = server.offer("one", Job(kind="select", payload={}))
        claim = client.claim(["select"], wait_s=1)
        assert claim is not None
        job = client.job(claim)
        calls: list[int] = []
        job.save_blob(digest, path, meanwhile=lambda: calls.append(1))
        assert path.read_bytes() == data
        assert len(calls) >= 3, "a heartbeat can go out after each megabyte"
        server.blobs[digest] = data[:-1]
        for sha256, code in ((digest, "blob_mismatch"), ("0" * 64, "blob_not_found")):
            with pytest.raises(JobFailed) as caught:
                job.save_blob(sha256, path, meanwhile=lambda: None)
            assert caught.value.code == code
        offered.is_gone = True
        with pytest.raises(LeaseLost):
            job.save_blob(digest, path, meanwhile=lambda: None)


# --- in a real agent ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[LeaseServer]:
    with lease_server() as server:
        yield server


@pytest.fixture(scope="module")
def running(server: LeaseServer) -> Iterator["subprocess.Popen[bytes]"]:
    with agent(server, kinds="select") as process:
        yield process
        assert process.poll() is None


def offer(server: LeaseServer, job: SelectJob, columns: bytes, rows: bytes) -> Job:
    whole = dataclasses.replace(job, columns_sha256=server.put(columns), rows_sha256=server.put(rows))
    return server.offer(f"select_{len(server.jobs)}", Job(kind="select", payload=whole.to_json()))


def offer_slow(server: LeaseServer) -> Job:
    """Minutes of work: complete linkage compares everything with everything, and facility location does so again."""
    given = np.random.default_rng(5).normal(size=(12_000, 64)).astype(np.float32)
    options = {"method": "facility_location"}
    ids = [str(i) for i in range(len(given))]
    return offer(server, job_of(len(given), width=64, k=6_000, options=options), columns_of(ids, None), rows_of(given))


@pytest.mark.nightly
def test_the_agent_works_on_a_select_job_in_its_child(server: LeaseServer, running: "subprocess.Popen[bytes]") -> None:
    job = offer(server, job_of(40, width=0, k=8), columns_of(IDS, SCORES), texts_of(TEXTS))
    server.wait_until(lambda: bool(job.reports))
    assert job.reports[0]["ok"] is True, job.reports[0]
    result = select_result(job.reports[0]["result"], n=40, k=8, is_text=True)
    rows = load_text_embedder(n_texts=40).embed(TEXTS)
    keys = [f"{text_key(text)} {name}" for text, name in zip(TEXTS, IDS, strict=True)]
    assert tuple(result.picks) == select(rows, SCORES, keys, k=8, **OPTIONS).picks
    assert {beat["note"] for beat in job.heartbeats} <= {"starting", *SelectStage}


def wait_for_work(server: LeaseServer, process: "subprocess.Popen[bytes]", job: Job) -> int:
    server.wait_until(lambda: any(beat["note"] in set(SelectStage) for beat in job.heartbeats))
    (child,) = children_of(process.pid)
    return child


@pytest.mark.nightly
def test_a_slow_selection_is_canceled_within_seconds(server: LeaseServer, running: "subprocess.Popen[bytes]") -> None:
    job = offer_slow(server)
    child = wait_for_work(server, running, job)
    job.is_cancelled = True
    server.wait_until(lambda: bool(job.reports), within_s=5)
    assert (job.reports[0]["code"], job.reports[0]["retryable"]) == ("canceled", False)
    assert not is_alive(child)


@pytest.mark.nightly
def test_a_killed_selection_begins_anew_on_the_same_runner(
    server: LeaseServer, running: "subprocess.Popen[bytes]"
) -> None:
    job = offer_slow(server)
    os.kill(wait_for_work(server, running, job), signal.SIGKILL)
    server.wait_until(lambda: job.attempt == 2)
    assert (job.reports[0]["code"], job.reports[0]["retryable"]) == ("runner_killed", True)
    wait_for_work(server, running, job)
    job.is_cancelled = True
    server.wait_until(lambda: len(job.reports) == 2)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"n": 41}, "invalid_job"),
        ({"options": {"surprise": 1}}, "invalid_job"),
        ({"options": {"method": "best"}}, "invalid_input"),
        ({"rows_sha256": "0" * 64}, "blob_not_found"),
    ],
)
def test_a_job_that_cannot_be_worked_on_is_reported_with_its_reason(
    server: LeaseServer, running: "subprocess.Popen[bytes]", changes: dict[str, Any], code: str
) -> None:
    columns, rows = server.put(columns_of(IDS, SCORES)), server.put(texts_of(TEXTS))
    payload = dataclasses.replace(job_of(40, width=0, k=8), columns_sha256=columns, rows_sha256=rows).to_json()
    job = server.offer(f"select_{len(server.jobs)}", Job(kind="select", payload=payload | changes))
    server.wait_until(lambda: bool(job.reports))
    assert (job.reports[0]["ok"], job.reports[0]["code"], job.reports[0]["retryable"]) == (False, code, False)
