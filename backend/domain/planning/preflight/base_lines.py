"""The lines about the base and the runners: who holds or may fetch it, whether its weights fit into a device, and
whether what a training sends fits through.

Sizes come of the base itself (its files' headers, or its config and the sizes that the hub announces), as a runner
reports them. Where none did, the line says that it is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.jobs.base_checks import CheckBaseResult, RunnerReport, trains
from backend.domain.planning.gate_reach import PARAMETERS_A_RANK
from backend.domain.planning.preflight.lines import (
    Check,
    PreflightLine,
    failed_line,
    passed_line,
    skipped_line,
    warning_line,
)
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.models import Spec

GB = 1_000_000_000
QLORA_BYTES_A_WEIGHT = 0.55  # 4 bits and their scales, as gpu_runners.models.device counts them
ADAMW_BYTES = 16  # in memory, a trained parameter: itself, its gradient, two moments, in fp32
CHECKPOINT_BYTES, CHECKPOINT_8BIT_BYTES = 14, 8  # of it in a checkpoint, with AdamW and 8-bit AdamW (adapter_sizes)
ADAPTER_BYTES = 2  # of it in an adapter: bf16
# refusals that say something about the runner that looked, not about the base
OF_THE_RUNNER = frozenset({"base_too_large", "base_cache_full", "base_cache_failed"})
NOT_KNOWN = frozenset({"hub_unavailable", "base_cache_full", "base_cache_failed"})  # ours, and likely to pass
_TO_DO = {
    "unknown_base": "Correct the base's name in {field}, or leave it out for the default.",
    "gated_base": "Take a base that is not gated, or ask the operator for it.",
    "not_causal": "Take an instruct model of the hub.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRunner:
    """A runner that reported lately."""

    name: str
    report: RunnerReport


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseInUse:
    """A base that the spec needs; `field` is where it is named, `rank` that of its adapter."""

    name: str
    kind: TrialKind
    field: str
    rank: int


def bases_of(spec: Spec) -> list[BaseInUse]:
    """The bases that the spec's trials train, in their order."""
    kind, train = train_kind(spec), spec.train
    encoder = BaseInUse(name=train.base, kind=TrialKind.ENCODER, field="train.base", rank=train.rank)
    causal = BaseInUse(name=train.causal.base, kind=TrialKind.CAUSAL, field="train.causal.base", rank=train.causal.rank)
    return [base for base in (encoder, causal) if kind in (base.kind, "auto")]


def runner_line(base: BaseInUse, runners: Sequence[KnownRunner]) -> PreflightLine:
    able = _trainers(base, runners)
    if able:
        names = ", ".join(_description(runner) for runner in able[:5])
        return passed_line(Check.RUNNER, f"Runners that train bases of the kind {base.kind}: {names}.")
    if not runners:
        return warning_line(
            Check.RUNNER,
            "It is not known whether a runner is there: none has reported within two minutes.",
            code="no_runner_known",
            what_to_do="The operator starts one (docs/servers.md); a compile waits for it when its pairs are ready.",
        )
    return warning_line(
        Check.RUNNER,
        f"None of the {len(runners)} runners that reported trains a base of the kind {base.kind}.",
        code="no_runner_known",
        what_to_do="The operator adds the kind to KOLM_RUNNER_KINDS of a runner.",
    )


def base_lines(
    base: BaseInUse, looked: CheckBaseResult | None, looked_by: str, runners: Sequence[KnownRunner]
) -> list[PreflightLine]:
    """`looked` is what the runner `looked_by` found; None: no runner looked."""
    holders = [runner.name for runner in runners if base.name in runner.report.bases]
    if looked is None:
        if holders:
            return [passed_line(Check.BASE, f"The runner {holders[0]} holds the base {base.name!r}.")]
        return [_not_known(base)]
    if looked.code in NOT_KNOWN:
        return [warning_line(Check.BASE, looked.message, code=looked.code, what_to_do="Try again in a minute.")]
    if looked.code:
        return [_refusal_line(base, looked, looked_by, runners)]
    size = f" ({_gb(looked.size_bytes)})" if looked.size_bytes else ""
    how = "holds" if looked.is_here else "may fetch"
    held = passed_line(Check.BASE, f"The runner {looked_by} {how} the base {base.name!r}{size}.")
    left_out = [one.name for one in _trainers(base, runners) if one.report.is_offline and one.name not in holders]
    left_out = [name for name in left_out if name != looked_by]
    if not left_out:
        return [held]
    return [
        held,
        warning_line(
            Check.BASE,
            f"The runner {left_out[0]} neither holds the base {base.name!r} nor asks a hub: a job that it takes fails.",
            code="unknown_base",
            what_to_do=f"The operator puts its files under KOLM_BASE_DIR/{base.name} there, or unsets HF_HUB_OFFLINE.",
        ),
    ]


def _not_known(base: BaseInUse) -> PreflightLine:
    return warning_line(
        Check.BASE,
        f"It is not known whether a runner holds or may fetch the base {base.name!r}: none has looked.",
        code="base_not_known",
        what_to_do=f"Check the name in {base.field}; a training refuses a wrong one after its pairs were paid for.",
    )


def _refusal_line(
    base: BaseInUse, looked: CheckBaseResult, looked_by: str, runners: Sequence[KnownRunner]
) -> PreflightLine:
    """A refusal of this base; a warning where it is this runner's alone and another one may do better."""
    sentence, _, advice = looked.message.partition(". ")
    sentence = sentence.rstrip(".") + "."
    todo = advice or _TO_DO.get(looked.code, "Take another base in {field}.").format(field=base.field)
    if _may_another(base, looked, looked_by, runners):
        text = f"On the runner {looked_by}: {sentence}"
        return warning_line(Check.BASE, text, code=looked.code, what_to_do=f"Another runner may take it. {todo}")
    return failed_line(Check.BASE, sentence, code=looked.code, what_to_do=todo)


def _may_another(base: BaseInUse, looked: CheckBaseResult, looked_by: str, runners: Sequence[KnownRunner]) -> bool:
    others = [runner for runner in _trainers(base, runners) if runner.name != looked_by]
    if any(base.name in runner.report.bases for runner in others):
        return True
    was_offline = any(runner.name == looked_by and runner.report.is_offline for runner in runners)
    if looked.code == "unknown_base" and was_offline:
        return any(not runner.report.is_offline for runner in others)
    if looked.code in OF_THE_RUNNER:
        rooms = [runner.report.room_bytes for runner in others if not runner.report.is_offline]
        return any(room is None or room >= looked.size_bytes for room in rooms)
    return False


def memory_line(
    spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, runners: Sequence[KnownRunner]
) -> PreflightLine:
    """Tell whether weights, adapter and optimiser fit into a device that trains this base. Activations come on top; a
    trainer recomputes them where they do not fit."""
    able = [runner for runner in _trainers(base, runners) if runner.report.memory_bytes is not None]
    if looked is None or not looked.n_parameters or not able:
        lacking = "how large the base is" if looked is None or not looked.n_parameters else "what memory runners have"
        return warning_line(
            Check.MEMORY,
            f"It is not known {lacking}.",
            code="memory_not_known",
            what_to_do=f"Take a smaller {base.field} where you doubt it.",
        )
    needs = {runner.name: _least_memory(spec, base, looked, runner.report) for runner in able}
    fitting = [runner for runner in able if needs[runner.name] <= (runner.report.memory_bytes or 0)]
    most = max(able, key=lambda runner: runner.report.memory_bytes or 0)
    what = f"Weights, adapter and optimiser of {base.name!r} need {_gb(needs[most.name])}"
    if not fitting:
        count = "the only runner" if len(able) == 1 else f"the largest of {len(able)} runners"
        return failed_line(
            Check.MEMORY,
            f"{what}, and {count}, {most.name}, has {_gb(most.report.memory_bytes or 0)}.",
            code="base_exceeds_memory",
            what_to_do=f"Take a smaller {base.field}, train.causal.variant qlora on a CUDA device, or a larger runner.",
        )
    small = [runner.name for runner in able if runner not in fitting]
    if small:
        return warning_line(
            Check.MEMORY,
            f"{what}; the runner {fitting[0].name} has room for it and {small[0]} has not: a job that it takes fails.",
            code="base_exceeds_memory",
            what_to_do="The operator lets the small runner take other kinds of jobs (KOLM_RUNNER_KINDS).",
        )
    return passed_line(Check.MEMORY, f"{what}; {most.name} has {_gb(most.report.memory_bytes or 0)}.")


def _least_memory(spec: Spec, base: BaseInUse, looked: CheckBaseResult, report: RunnerReport) -> int:
    trained = looked.adapter_parameters * base.rank
    if base.kind is TrialKind.CAUSAL and spec.train.causal.variant == "qlora":
        per_weight = QLORA_BYTES_A_WEIGHT
    else:
        precision = spec.train.causal.precision if base.kind is TrialKind.CAUSAL else spec.train.precision
        per_weight = 2 if report.has_bf16 and precision != "fp32" else 4
    return int(looked.n_parameters * per_weight) + trained * ADAMW_BYTES


def transfer_line(spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, *, limit_bytes: int) -> PreflightLine:
    """Tell whether adapter and checkpoint are within what a file may have. Without the adapter there is no artifact;
    without checkpoints a training that is cut off begins again."""
    a_rank = adapter_parameters(base, looked)
    if a_rank is None:
        return warning_line(
            Check.TRANSFER,
            f"It is not known how large an adapter of {base.name!r} is; a file may have {_mb(limit_bytes)}.",
            code="adapter_size_not_known",
            what_to_do=f"Keep {_rank_field(base)} at its default where the base is large.",
        )
    trained = a_rank * base.rank
    adapter, most, least = (trained * each for each in (ADAPTER_BYTES, CHECKPOINT_BYTES, CHECKPOINT_8BIT_BYTES))
    what = f"An adapter of {base.name!r} with rank {base.rank} has {_mb(adapter)}"
    if adapter > limit_bytes:
        fitting = max(1, limit_bytes // (a_rank * ADAPTER_BYTES))
        return failed_line(
            Check.TRANSFER,
            f"{what}; a file may have {_mb(limit_bytes)}.",
            code="adapter_too_large",
            what_to_do=f"Lower {_rank_field(base)} to {fitting} or less, or take a smaller {base.field}.",
        )
    if most > limit_bytes:
        fitting = max(1, limit_bytes // (a_rank * CHECKPOINT_BYTES))
        return warning_line(
            Check.TRANSFER,
            f"{what}, and its checkpoints {_mb(least)} with an 8-bit optimiser, {_mb(most)} without; a file may have "
            f"{_mb(limit_bytes)}. Without checkpoints a training that is cut off begins again.",
            code="checkpoint_too_large",
            what_to_do=f"Lower {_rank_field(base)} to {fitting} or less, or let it be.",
        )
    return passed_line(
        Check.TRANSFER, f"{what} and its checkpoints {_mb(most)} at most; a file may have {_mb(limit_bytes)}."
    )


def disk_line(base: BaseInUse, looked: CheckBaseResult | None, *, free_bytes: int | None) -> PreflightLine:
    """Tell whether the store of this installation has room for two checkpoints and the adapter, held at a time."""
    if free_bytes is None:
        return skipped_line(Check.DISK, "How much room the installation's store has cannot be told just now.")
    a_rank = adapter_parameters(base, looked)
    has = f"The installation's store has {_gb(free_bytes)} left"
    if a_rank is None:
        return skipped_line(Check.DISK, f"{has}; how much of it this compile takes is not known.")
    needed = a_rank * base.rank * (2 * CHECKPOINT_BYTES + ADAPTER_BYTES)
    if needed > free_bytes:
        return failed_line(
            Check.DISK,
            f"{has}, and checkpoints and adapter take {_gb(needed)}.",
            code="blob_store_full",
            what_to_do="The operator gives the store a larger disk; until then take a smaller base or rank.",
        )
    return passed_line(Check.DISK, f"{has}; checkpoints and adapter take {_mb(needed)} of it at most.")


def adapter_parameters(base: BaseInUse, looked: CheckBaseResult | None) -> int | None:
    """The trained parameters for each rank, as a runner read them off the base, else as they are known of it."""
    read = 0 if looked is None else looked.adapter_parameters
    return read or PARAMETERS_A_RANK.get(base.name.partition("@")[0])


def _trainers(base: BaseInUse, runners: Sequence[KnownRunner]) -> list[KnownRunner]:
    return [runner for runner in runners if trains(runner.report, is_causal=base.kind is TrialKind.CAUSAL)]


def _description(runner: KnownRunner) -> str:
    report = runner.report
    memory = "" if report.memory_bytes is None else f", {_gb(report.memory_bytes)}"
    return f"{runner.name} ({report.device_name or report.device or 'device not known'}{memory})"


def _rank_field(base: BaseInUse) -> str:
    return base.field.removesuffix("base") + "rank"


def _gb(n_bytes: int) -> str:
    """
    >>> _gb(15_200_000_000), _gb(90_900_000)
    ('15.2 GB', '90.9 MB')
    """
    return f"{n_bytes / GB:.1f} GB" if n_bytes >= GB else _mb(n_bytes)


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1_000_000:.1f} MB"
