"""The real MiniLM trained on a small task: forty pairs take about a second an epoch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.domain.jobs.runner_jobs import DistillJob
from gpu_runners.distill.label.train import distill
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.models.bases import MINILM, Base, open_base
from tests.gpu_runners.small_spans import TrainedSpans, span_job, span_pairs
from tests.gpu_runners.small_task import Trained, jsonl, small_job, task_rows


@pytest.fixture(autouse=True)
def no_saved_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of whoever runs the tests: neither their saved login nor their environment's."""
    monkeypatch.setenv("KOLM_CONFIG", str(tmp_path / "kolm-config.json"))
    for name in ("KOLM_API_URL", "KOLM_API_KEY", "KOLM_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def base() -> Base:
    return open_base(MINILM)


@pytest.fixture(scope="session")
def dataset() -> bytes:
    return jsonl(task_rows(10))


@pytest.fixture(scope="session")
def make_job(dataset: bytes) -> Callable[..., DistillJob]:
    """A job on `dataset` with the one option that matters."""

    def make(*, checkpoint_every_s: float = 1e9, **options: Any) -> DistillJob:
        return small_job(dataset, checkpoint_every_s=checkpoint_every_s, **options)

    return make


@pytest.fixture(scope="session")
def trained(make_job: Callable[..., DistillJob], dataset: bytes, base: Base) -> Trained:
    job = make_job()
    blob, result = distill(job, dataset, base=base)
    return Trained(job=job, dataset=dataset, blob=blob, result=result)


@pytest.fixture(scope="session")
def trained_spans(base: Base) -> TrainedSpans:
    """A span student of forty pairs, trained until it knows them."""
    job, data, plan = span_job(span_pairs(40), epochs=30, rank=8, alpha=16)
    blob, result = distill_spans(job, data, base=base)
    return TrainedSpans(job=job, dataset=data, plan=plan, blob=blob, result=result)
