"""One job's files in, one job's files out: the part of the child process that knows what distil and evaluate need.

In the job's folder the parent has put `dataset` and maybe `checkpoint`, `start` and `sampled` (distil), `inputs`,
`adapter` and maybe `rules` (evaluate), or `observations`, `prompts`, `adapter` and maybe `earlier`, `feedback`, `epoch`
(recipes). Checkpoints are written under new names and announced as events; `adapter` and maybe `samples` are what a
distil job leaves, `pack` what a recipes job does.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from backend.domain.jobs.causal_jobs import DistillCausalJob, DistillCausalResult, EvaluateCausalJob
from backend.domain.jobs.recipe_jobs import PackRecipesJob
from backend.domain.jobs.runner_jobs import DistillJob, EvaluateJob
from backend.domain.jobs.span_jobs import DistillSpansJob, EvaluateSpansJob
from gpu_runners.distill.checkpoint import Hooks, Snapshot, StepDone
from gpu_runners.distill.label.train import distill
from gpu_runners.errors import JobFailed
from gpu_runners.jobs.label_evaluation import evaluate
from gpu_runners.memory import give_memory_back
from gpu_runners.models.base_checks import check_usable
from gpu_runners.models.bases import open_base

Emit = Callable[[dict[str, Any]], None]


class Line(Protocol):
    """`gpu_runners.agent.child.Line`, which cannot be imported: that module is the process."""

    sent_s: float | None


def warm_up() -> None:
    """Import what the first job of a label task would wait for; peft and transformers, 6 s of CPU more, are for other
    encoders and for causal bases."""
    import sklearn.linear_model  # noqa: F401


def distill_files(
    job: DistillJob, *, folder: Path, base_dir: Path | None, emit: Emit, should_stop: Callable[[], bool], line: Line
) -> dict[str, Any]:
    base = open_base(job.base_model, base_dir=base_dir)
    check_usable(base.name, base.folder, kind="encoder")
    hooks = _hooks(folder, emit, should_stop, line)
    blob, result = distill(job, (folder / "dataset").read_bytes(), base=base, resume=_checkpoint(folder), hooks=hooks)
    _write_adapter(folder, blob)
    return {"result": result.to_json(), "blobs": [str(folder / "adapter")]}


def distill_causal_files(
    job: DistillCausalJob,
    *,
    folder: Path,
    base_dir: Path | None,
    emit: Emit,
    should_stop: Callable[[], bool],
    line: Line,
) -> dict[str, Any]:
    from gpu_runners.distill.causal.train import distill_causal
    from gpu_runners.models.causal_base import open_causal_base

    base = open_causal_base(job.base_model, base_dir=base_dir)
    check_usable(base.name, base.folder, kind="causal")
    hooks, data = _hooks(folder, emit, should_stop, line), (folder / "dataset").read_bytes()
    start, resume = _optional(folder, "start"), _checkpoint(folder)
    blob, result = distill_causal(job, data, base=base, start=start, resume=resume, hooks=hooks)
    _write_adapter(folder, blob)
    blobs = [str(folder / "adapter")]
    if job.sampling:
        result = _with_samples(job, blob, result, folder=folder, base=base, emit=emit)
        blobs.append(str(folder / "samples"))
    return {"result": result.to_json(), "blobs": blobs}


def _with_samples(
    job: DistillCausalJob, adapter: bytes, result: DistillCausalResult, *, folder: Path, base: Any, emit: Emit
) -> DistillCausalResult:
    """The result with the student's own answers, which are left in the folder."""
    from gpu_runners.distill.causal.student_samples import student_samples
    from gpu_runners.models.causal_adapter import AdapterConfig

    give_memory_back()  # the training's base, before the engine's
    samples = student_samples(
        job,
        (folder / "sampled").read_bytes(),
        adapter,
        AdapterConfig.from_json(result.adapter_config),
        base=base,
        seed=int(job.options.get("seed", 0)),
        on_progress=lambda done, total: _report(emit, done, total, "answering training inputs"),
    )
    (folder / "samples").write_bytes(samples.data)
    return replace(result, samples_sha256=samples.sha256, n_read=samples.n_read, n_written=samples.n_written)


def distill_spans_files(
    job: DistillSpansJob,
    *,
    folder: Path,
    base_dir: Path | None,
    emit: Emit,
    should_stop: Callable[[], bool],
    line: Line,
) -> dict[str, Any]:
    from gpu_runners.distill.spans.train import distill_spans

    base = open_base(job.base_model, base_dir=base_dir)
    check_usable(base.name, base.folder, kind="encoder")
    hooks, data = _hooks(folder, emit, should_stop, line), (folder / "dataset").read_bytes()
    blob, result = distill_spans(job, data, base=base, resume=_checkpoint(folder), hooks=hooks)
    _write_adapter(folder, blob)
    return {"result": result.to_json(), "blobs": [str(folder / "adapter")]}


def _write_adapter(folder: Path, blob: bytes) -> None:
    try:
        (folder / "adapter").write_bytes(blob)
    except OSError as error:
        raise JobFailed(
            f"The runner's disk did not take the adapter's {len(blob):,} bytes ({error.strerror}); its operator must "
            "make room under TMPDIR.",
            code="runner_disk_full",
            retryable=True,
        ) from error


def _checkpoint(folder: Path) -> Path | None:
    path = folder / "checkpoint"
    return path if path.exists() else None


def _hooks(folder: Path, emit: Emit, should_stop: Callable[[], bool], line: Line) -> Hooks:
    """Steps and checkpoints of a training as events. A checkpoint that the disk does not take is told, and the
    training goes on."""
    numbers, at_step = itertools.count(), 0

    def on_step(done: StepDone) -> None:
        nonlocal at_step
        at_step = done.step
        _report(emit, done.step, done.n_steps, done.note, loss=done.loss, eta_s=done.eta_s)

    def on_checkpoint(state: Snapshot) -> int:
        path = folder / f"checkpoint-{next(numbers)}"
        try:
            n_bytes = state.write(path)
        except OSError as error:
            path.unlink(missing_ok=True)
            message = f"{type(error).__name__}: {error.strerror}"
            emit({"event": "checkpoint_failed", "message": message, "n_bytes": state.n_bytes})
            return state.n_bytes
        line.sent_s = None  # until the parent says that it has arrived
        emit({"event": "checkpoint", "path": str(path), "at_step": at_step})
        return n_bytes

    return Hooks(on_step=on_step, on_checkpoint=on_checkpoint, should_stop=should_stop, sent_s=lambda: line.sent_s)


def _report(
    emit: Emit, done: int, total: int, note: str, *, loss: float | None = None, eta_s: float | None = None
) -> None:
    emit({"event": "progress", "step": done, "n_steps": total, "loss": loss, "eta_s": eta_s, "note": note})


def evaluate_files(job: EvaluateJob, *, folder: Path, base_dir: Path | None, emit: Emit) -> dict[str, Any]:
    base = open_base(job.base_model, base_dir=base_dir, expect_sha256=job.base_model_sha256)

    def on_progress(done: int, total: int) -> None:
        _report(emit, done, total, "predicting held-out inputs")

    result = evaluate(
        job,
        (folder / "inputs").read_bytes(),
        (folder / "adapter").read_bytes(),
        base=base,
        rules=_optional(folder, "rules"),
        gold=_optional(folder, "gold"),
        random=_optional(folder, "random"),
        on_progress=on_progress,
    )
    return {"result": result.to_json(), "blobs": []}


def evaluate_files_causal(job: EvaluateCausalJob, *, folder: Path, base_dir: Path | None, emit: Emit) -> dict[str, Any]:
    from gpu_runners.jobs.causal_evaluation import evaluate_causal
    from gpu_runners.models.causal_base import open_causal_base

    base = open_causal_base(job.base_model, base_dir=base_dir, expect_sha256=job.base_model_sha256)

    def on_progress(done: int, total: int) -> None:
        _report(emit, done, total, "answering held-out inputs")

    result = evaluate_causal(
        job,
        (folder / "inputs").read_bytes(),
        (folder / "adapter").read_bytes(),
        base=base,
        rules=_optional(folder, "rules"),
        on_progress=on_progress,
    )
    return {"result": result.to_json(), "blobs": []}


def evaluate_spans_files(job: EvaluateSpansJob, *, folder: Path, base_dir: Path | None, emit: Emit) -> dict[str, Any]:
    from gpu_runners.jobs.span_evaluation import evaluate_spans

    base = open_base(job.base_model, base_dir=base_dir, expect_sha256=job.base_model_sha256)

    def on_progress(done: int, total: int) -> None:
        _report(emit, done, total, "answering held-out inputs")

    result = evaluate_spans(
        job,
        (folder / "inputs").read_bytes(),
        (folder / "adapter").read_bytes(),
        base=base,
        rules=_optional(folder, "rules"),
        on_progress=on_progress,
    )
    return {"result": result.to_json(), "blobs": []}


def _optional(folder: Path, name: str) -> bytes | None:
    path = folder / name
    return path.read_bytes() if path.exists() else None


def pack_recipes_files(job: PackRecipesJob, *, folder: Path, base_dir: Path | None, emit: Emit) -> dict[str, Any]:
    from gpu_runners.jobs.pack_recipes import pack_recipes, read_inputs_of

    def on_progress(done: int, total: int, note: str) -> None:
        _report(emit, done, total, note)

    data, result = pack_recipes(job, read_inputs_of(folder), base_dir=base_dir, on_progress=on_progress)
    (folder / "pack").write_bytes(data)
    return {"result": result.to_json(), "blobs": [str(folder / "pack")]}
