"""A distil_causal job as the child process works on it: files in, files and events out, and the same lane as before."""

import io
import json
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from backend.domain.jobs.causal_jobs import DistillCausalResult
from backend.domain.jobs.runner_jobs import RunnerJobKind
from gpu_runners.agent import child, jobs, training_worker
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models.causal_base import CausalBase
from tests.gpu_runners.distill.causal.small_answers import jsonl, make_job, rows


def ask(base: CausalBase, folder: Path, *, stop: bool = False, **options: Any) -> tuple[dict[str, Any], list[Any]]:
    job = make_job(base, epochs=1, checkpoint_every_s=0.0, **options)
    events, stopping = io.StringIO(), threading.Event()
    if stop:
        stopping.set()
    request = {"kind": "distill_causal", "payload": job.to_json(), "folder": str(folder)}
    try:
        done = child._work(jobs, request | {"base_dir": str(base.folder.parent)}, events, stopping)
    except JobStopped:
        done = {}
    return done, [json.loads(line) for line in events.getvalue().splitlines()]


def test_a_job_leaves_its_adapter_and_tells_of_steps_and_checkpoints(small_base: CausalBase, tmp_path: Path) -> None:
    (tmp_path / "dataset").write_bytes(jsonl(rows()))
    done, events = ask(small_base, tmp_path)
    result = DistillCausalResult.from_json(done["result"])
    assert done["blobs"] == [str(tmp_path / "adapter")]
    assert result.base_model_sha256 == small_base.sha256
    assert {event["event"] for event in events} == {"progress", "checkpoint"}
    assert json.loads(json.dumps(done)) == done


def test_a_stopped_job_goes_on_from_the_checkpoint_that_it_left(small_base: CausalBase, tmp_path: Path) -> None:
    (tmp_path / "dataset").write_bytes(jsonl(rows()))
    _, events = ask(small_base, tmp_path, stop=True)
    Path(events[-1]["path"]).rename(tmp_path / "checkpoint")
    done, _ = ask(small_base, tmp_path)
    assert done["result"]["resumed_from_step"] == 1


def test_a_base_that_does_not_fit_into_the_devices_memory_is_out_of_memory(
    small_base: CausalBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the process died of it, four times: `runner_crashed`."""
    (tmp_path / "dataset").write_bytes(jsonl(rows()))

    def full(*_: object, **__: object) -> NoReturn:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", full)
    request = {"kind": "distill_causal", "payload": make_job(small_base).to_json(), "folder": str(tmp_path)}
    events = io.StringIO()
    base_dir = str(small_base.folder.parent)
    child._answer(jobs, request | {"base_dir": base_dir}, events, threading.Event(), child.Line())
    (event,) = map(json.loads, events.getvalue().splitlines())
    assert (event["event"], event["code"], event["retryable"]) == ("failed", "out_of_memory", True)


def test_a_payload_that_is_no_job_is_refused(small_base: CausalBase, tmp_path: Path) -> None:
    request = {"kind": "distill_causal", "payload": {"base_model": "x"}, "folder": str(tmp_path), "base_dir": None}
    with pytest.raises(JobFailed) as failure:
        child._work(jobs, request, io.StringIO(), threading.Event())
    assert failure.value.code == "invalid_job"


def test_the_training_lane_knows_what_every_kind_fetches() -> None:
    assert set(training_worker._BLOBS) == set(RunnerJobKind) - {RunnerJobKind.INFER, RunnerJobKind.CHECK_BASE}
