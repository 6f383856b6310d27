"""The real MiniLM, trained for real on forty pairs."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backend.domain.jobs import students
from backend.domain.jobs.runner_jobs import DistillJob
from gpu_runners.cli.main import main
from gpu_runners.distill import checkpoint
from gpu_runners.distill.checkpoint import Hooks, Snapshot, StepDone
from gpu_runners.distill.label import record
from gpu_runners.distill.label.fit import learning_rate_factor
from gpu_runners.distill.label.train import Counters, distill
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import head_logits, load_runtime
from gpu_runners.models.encoder_tokens import TextTokenizer
from gpu_runners.models.label_adapter import AdapterConfig, from_bytes
from tests.backend.domain.artifact.tiny_kolm import keyring
from tests.gpu_runners.distill.kept import Kept
from tests.gpu_runners.small_task import LABELS, Trained, jsonl, kolm_of, task_rows

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
# in a fold, at its last contrastive step, its last, in the next, at the last fold's last, in the training by either
# objective
@pytest.mark.parametrize("stop_at", [1, 2, 4, 6, 12, 14, 15, 16])
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
    counters = Counters(fingerprint="a", fits=3, steps_before=9, step=1, epoch_loss=0.5, epoch_steps=1, log=[])
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
    n_expected = [step.n_steps for step in steps]
    assert n_expected == sorted(n_expected, reverse=True)  # pairs that rest only take away
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


def test_the_adapter_and_the_frozen_head_compete_on_pairs_that_they_had_not_seen(trained: Trained) -> None:
    result = trained.result
    assert result.student == "contrastive"
    adapter, head = result.competition
    assert [one["student"] for one in result.competition] == ["contrastive", "frozen"]
    assert {one["n"] for one in result.competition} == {result.active["n_validation"]}
    assert adapter["correct"] == sum(result.held_right)
    assert head["correct"] - adapter["correct"] == head["better"] - head["worse"]


def test_few_pairs_are_gone_over_by_the_contrastive_objective_beforehand(trained: Trained) -> None:
    rows = trained.result.training_log
    assert [row.get("objective", "") for row in rows] == ["contrastive", ""] * 4, "two epochs of three folds and of all"
    assert trained.result.active["objective"] == "contrastive, then cross-entropy"
    assert trained.result.active["contrastive_epochs"] == 1
    assert {row["layers"] for row in rows if row["fit"] == "calibrate"} == {6}


def test_a_checkpoint_of_another_trainer_starts_afresh(
    trained: Trained, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, steps = Kept(tmp_path), list[StepDone]()
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, should_stop=lambda: steps[-1].step == 9)
    with pytest.raises(JobStopped):
        distill(trained.job, trained.dataset, base=base, hooks=hooks)
    monkeypatch.setattr(record, "TRAINER", record.TRAINER + 1)
    blob, result = distill(trained.job, trained.dataset, base=base, resume=saved[-1])
    assert (blob, result.resumed_from_epoch) == (trained.blob, 0)


def test_texts_of_a_label_meet_in_a_contrastive_batch_whatever_the_size_of_one(
    trained: Trained, make_job: MakeJob, base: Base
) -> None:
    counts = []
    for student in ("contrastive", "adapter"):
        steps: list[StepDone] = []
        job = make_job(student=student, batch_size=8, epochs=2, validation_share=0.0)
        distill(job, trained.dataset, base=base, hooks=Hooks(on_step=steps.append))
        counts.append(steps[-1].step)
    assert counts == [2 * 3, 2 * 5], "40 pairs by 16, and by 8"


def test_many_pairs_have_no_contrastive_passes(
    trained: Trained, make_job: MakeJob, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(students, "FEW_PAIRS", len(trained.dataset.splitlines()) - 1)
    _, result = distill(make_job(), trained.dataset, base=base)
    assert [one["student"] for one in result.competition] == ["adapter", "frozen"]
    assert not any("objective" in row for row in result.training_log)
    assert result.active["contrastive_epochs"] == 0
    assert {row["layers"] for row in result.training_log if row["fit"] == "calibrate"} == {1}


def test_a_contrastive_student_can_be_named_and_answers_as_it_was_taught(
    trained: Trained, make_job: MakeJob, base: Base
) -> None:
    blob, result = distill(make_job(student="contrastive", epochs=6), trained.dataset, base=base)
    assert [one["student"] for one in result.competition] == ["contrastive", "frozen"]
    assert result.n_tokens == 3 * trained.result.n_tokens
    adapter = from_bytes(blob)
    assert adapter.lora
    config = AdapterConfig.from_json(result.adapter_config)
    rows = [json.loads(line) for line in trained.dataset.splitlines()]
    tokens = TextTokenizer(base, max_tokens=config.max_tokens).ids([row["input"] for row in rows])
    answers = load_runtime(base).engine(adapter, config).logits(tokens).argmax(axis=1)
    assert [LABELS[i] for i in answers] == [row["label"] for row in rows]


def test_one_text_a_label_trains_though_none_can_be_held(make_job: MakeJob, base: Base) -> None:
    dataset = jsonl(task_rows(1))
    job = dataclasses.replace(make_job(epochs=1), dataset_sha256=hashlib.sha256(dataset).hexdigest())
    blob, result = distill(job, dataset, base=base)
    assert from_bytes(blob).lora
    assert (result.student, result.competition, result.held_right, result.temperature) == ("contrastive", [], [], 1.0)


@pytest.mark.nightly
def test_an_adapter_that_training_wrecks_is_not_the_student(
    trained: Trained, make_job: MakeJob, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The top layers lose, so the folds are trained whole; those lose too, and a run that stops among them goes on."""
    monkeypatch.setattr(students, "FEW_PAIRS", 0)
    job = make_job(learning_rate=0.2, epochs=1)
    blob, result = distill(job, trained.dataset, base=base)
    assert (result.student, result.active["layers"], from_bytes(blob).lora) == ("frozen", 0, {})
    frozen, adapter = result.competition
    assert frozen["correct"] - adapter["correct"] == adapter["worse"] - adapter["better"] > 0
    assert [row["layers"] for row in result.training_log] == [1, 1, 1, 6, 6, 6]
    assert adapter["correct"] == result.training_log[-1]["validation_correct"]
    saved, steps = Kept(tmp_path), list[StepDone]()
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, should_stop=lambda: "calibrate 4 of 6" in steps[-1].note)
    with pytest.raises(JobStopped):
        distill(job, trained.dataset, base=base, hooks=hooks)
    again, resumed = distill(job, trained.dataset, base=base, resume=saved[-1])
    assert (again, resumed.competition, resumed.training_log) == (blob, result.competition, result.training_log)


@pytest.mark.nightly
def test_of_few_pairs_the_head_is_the_student_where_training_wrecks_the_adapter(
    trained: Trained, make_job: MakeJob, base: Base
) -> None:
    blob, result = distill(make_job(learning_rate=0.5, epochs=2), trained.dataset, base=base)
    assert (result.student, from_bytes(blob).lora) == ("frozen", {})
    assert [one["student"] for one in result.competition] == ["frozen", "contrastive"]
    assert [row["layers"] for row in result.training_log] == [6] * 6


def test_a_frozen_student_is_the_head_alone_and_its_artifact_answers_like_it(
    trained: Trained,
    make_job: MakeJob,
    base: Base,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blob, result = distill(make_job(student="frozen"), trained.dataset, base=base)
    adapter = from_bytes(blob)
    assert not adapter.lora
    assert np.array_equal(adapter.head.weight, adapter.baseline.weight)
    assert (result.student, [one["student"] for one in result.competition]) == ("frozen", ["frozen"])
    assert (result.training_log, result.n_tokens) == ([], trained.result.n_tokens // trained.job.train["epochs"])
    assert 0 < len(result.held_right) == result.competition[0]["n"]
    frozen = dataclasses.replace(trained, blob=blob, result=result)
    texts = [json.loads(line)["input"] for line in trained.dataset.splitlines()[:8]]
    (tmp_path / "keyring.json").write_text(json.dumps(keyring()))
    (tmp_path / "a.kolm").write_bytes(kolm_of(frozen))
    (tmp_path / "in.jsonl").write_bytes(jsonl([{"input": text} for text in texts]))
    monkeypatch.setenv("KOLM_KEYRING", str(tmp_path / "keyring.json"))
    assert main(["run", str(tmp_path / "a.kolm"), "--jsonl", str(tmp_path / "in.jsonl")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    config = AdapterConfig.from_json(result.adapter_config)
    tokenizer = TextTokenizer(base, max_tokens=config.max_tokens)
    embedded = load_runtime(base).embed(tokenizer.ids(texts), pooling=config.pooling)
    assert [row["label"] for row in rows] == [LABELS[i] for i in head_logits(embedded, adapter.baseline).argmax(axis=1)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rank": 0}, "invalid_options"),
        ({"learning_rate": "much"}, "invalid_options"),
        ({"precision": "fp8"}, "invalid_options"),
        ({"student": "clever"}, "invalid_options"),
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
