"""The real MiniLM, trained for real on forty pairs."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.domain.jobs.runner_jobs import DistillJob
from gpu_runners.distill import checkpoint
from gpu_runners.distill.checkpoint import Hooks, Snapshot, StepDone
from gpu_runners.distill.label.fit import learning_rate_factor
from gpu_runners.distill.label.train import Counters, distill
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_tokens import TextTokenizer
from tests.gpu_runners.distill.kept import Kept
from tests.gpu_runners.small_task import LABELS, Trained, jsonl, task_rows

MakeJob = Callable[..., DistillJob]


def test_the_same_job_gives_the_same_bytes(trained: Trained, base: Base) -> None:
    blob, result = distill(trained.job, trained.dataset, base=base)
    assert blob == trained.blob
    assert result.temperature == trained.result.temperature
    assert result.training_log == trained.result.training_log
    assert result.held_confidences_ppm == trained.result.held_confidences_ppm
    last = next(row for row in reversed(result.training_log) if row["fit"] == "calibrate")
    assert sum(result.held_right) == last["validation_correct"]
    assert len(result.held_right) == len(result.held_confidences_ppm) == result.active["n_validation"] > 0
    assert all(1_000_000 / len(LABELS) <= value <= 1_000_000 for value in result.held_confidences_ppm)
    assert result.n_tokens == trained.result.n_tokens


def test_the_work_is_the_tokens_of_the_pairs_once_an_epoch(trained: Trained, base: Base) -> None:
    """However many fits that took."""
    tokenizer = TextTokenizer(base, max_tokens=trained.job.train["max_tokens"])
    texts = [json.loads(line)["input"] for line in trained.dataset.splitlines()]
    assert trained.result.n_tokens == trained.job.train["epochs"] * sum(map(len, tokenizer.ids(texts)))


@pytest.mark.nightly
def test_another_seed_gives_other_bytes(trained: Trained, make_job: MakeJob, base: Base) -> None:
    blob, _ = distill(make_job(seed=8, epochs=1), trained.dataset, base=base)
    assert blob != trained.blob


@pytest.mark.nightly
@pytest.mark.parametrize("stop_at", [1, 4, 6, 15])  # in a fold, at its last step, in the next, in the training
def test_a_run_resumed_from_a_checkpoint_ends_with_the_same_bytes(
    trained: Trained, base: Base, stop_at: int, tmp_path: Path
) -> None:
    saved = Kept(tmp_path)
    steps: list[StepDone] = []
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, should_stop=lambda: steps[-1].step == stop_at)
    with pytest.raises(JobStopped):
        distill(trained.job, trained.dataset, base=base, hooks=hooks)
    later: list[StepDone] = []
    blob, result = distill(trained.job, trained.dataset, base=base, resume=saved[-1], hooks=Hooks(on_step=later.append))
    assert blob == trained.blob
    assert later[0].step == stop_at + 1
    assert result.resumed_from_epoch == len(json.loads(_state(saved[-1].read_bytes()))["log"])
    assert (result.temperature, result.training_log) == (trained.result.temperature, trained.result.training_log)
    assert result.held_confidences_ppm == trained.result.held_confidences_ppm


@pytest.mark.nightly
def test_a_checkpoint_of_another_job_or_of_damaged_bytes_starts_afresh(
    trained: Trained, base: Base, tmp_path: Path
) -> None:
    steps: list[StepDone] = []
    (tmp_path / "checkpoint").write_bytes(b"not a checkpoint")
    blob, result = distill(
        trained.job, trained.dataset, base=base, resume=tmp_path / "checkpoint", hooks=Hooks(on_step=steps.append)
    )
    assert (blob, result.resumed_from_epoch, steps[0].step) == (trained.blob, 0, 1)


def test_a_checkpoint_is_bound_to_the_job_it_was_made_for(tmp_path: Path) -> None:
    counters = Counters(fingerprint="a", fits=3, step=1, epoch_loss=0.5, temperature=1.0, log=[])
    import torch

    Snapshot(counters=counters, tensors={"rng": torch.zeros(4, dtype=torch.uint8)}).write(tmp_path / "a")
    found = checkpoint.read(tmp_path / "a", Counters, fingerprint="a")
    assert found is not None
    assert found[0] == counters
    assert checkpoint.read(tmp_path / "a", Counters, fingerprint="b") is None
    assert checkpoint.read(tmp_path / "b", Counters, fingerprint="a") is None


def test_checkpoints_come_by_the_clock_and_progress_at_every_step(
    make_job: MakeJob, dataset: bytes, base: Base, tmp_path: Path
) -> None:
    ticks = iter(range(10_000))
    saved = Kept(tmp_path)
    steps: list[StepDone] = []
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, clock=lambda: float(next(ticks)))
    distill(make_job(epochs=1, checkpoint_every_s=5.0), dataset, base=base, hooks=hooks)
    assert [step.step for step in steps] == list(range(1, steps[-1].n_steps + 1))
    assert len({step.n_steps for step in steps}) == 1
    assert 1 <= len(saved) < len(steps)
    assert steps[-1].eta_s == 0


def test_the_result_says_what_was_switched_on(trained: Trained) -> None:
    active = trained.result.active
    assert (active["precision"], active["threads"], active["deterministic"]) == ("fp32", 1, True)
    assert (active["engine"], active["layers"]) == ("lean", 6)
    assert (active["n_train"], active["n_validation"], active["folds"]) == (40, 40, 3)
    assert trained.result.adapter_config["target_modules"] == ["dense", "key", "query", "value"]
    assert trained.result.n_parameters == 331_776 + 4 * 384 + 4
    assert all("seconds" not in row for row in trained.result.training_log)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rank": 0}, "invalid_options"),
        ({"learning_rate": "much"}, "invalid_options"),
        ({"precision": "fp8"}, "invalid_options"),
        ({"unknown": 1}, "invalid_options"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    trained: Trained, base: Base, change: dict[str, object], code: str
) -> None:
    job = dataclasses.replace(trained.job, train=trained.job.train | change)
    with pytest.raises(JobFailed) as caught:
        distill(job, trained.dataset, base=base)
    assert (caught.value.code, caught.value.retryable) == (code, False)


def test_a_label_without_pairs_is_refused(trained: Trained, base: Base) -> None:
    rows = [row for row in task_rows(4) if row["label"] != LABELS[0]]
    with pytest.raises(JobFailed, match="billing"):
        distill(trained.job, jsonl(rows), base=base)


def test_the_learning_rate_warms_up_and_decays_and_is_never_zero() -> None:
    factors = [learning_rate_factor(step, n_steps=20, warmup_share=0.1) for step in range(20)]
    assert factors[:2] == [0.5, 1.0]
    assert factors[2:] == sorted(factors[2:], reverse=True)
    assert min(factors) > 0


def _state(data: bytes) -> str:
    length = int.from_bytes(data[:8], "little")
    return str(json.loads(data[8 : 8 + length])["__metadata__"]["kolm"])
