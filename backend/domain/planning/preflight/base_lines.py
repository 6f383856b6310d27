"""The lines about the base and the runners: who trains its kind, and who holds or may fetch it. What a training of it
takes is in `size_lines`."""

from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.jobs.base_checks import CheckBaseResult, RunnerReport, trains
from backend.domain.planning.preflight.lines import (
    Check,
    PreflightLine,
    failed_line,
    passed_line,
    warning_line,
)
from backend.domain.planning.trials import TrialKind, first_kind
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.models import Spec

GB = 1_000_000_000
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
    """A base that the spec needs; `field` is where it is named, `rank` and `variant` those of its adapter."""

    name: str
    kind: TrialKind
    field: str
    rank: int
    variant: str = "lora"


def bases_of(spec: Spec, *, extracts: bool = True) -> list[BaseInUse]:
    """The bases that the spec's trials train, in their order. `extracts`: whether the pairs of a json task can be
    answered by a span student, as far as gold shows it."""
    first, train = first_kind(spec, extracts=extracts), spec.train
    rank = train.spans.rank if first is TrialKind.SPANS else train.rank
    encoder = BaseInUse(name=train.base, kind=TrialKind.ENCODER, field="train.base", rank=rank)
    causal = BaseInUse(
        name=train.causal.base,
        kind=TrialKind.CAUSAL,
        field="train.causal.base",
        rank=train.causal.rank,
        variant=train.causal.variant,
    )
    needed = [encoder] if first is not TrialKind.CAUSAL else []
    return [*needed, *([causal] if first is TrialKind.CAUSAL or train_kind(spec) == "auto" else [])]


def runner_line(base: BaseInUse, runners: Sequence[KnownRunner]) -> PreflightLine:
    able = trainers(base, runners)
    unable = [one for one in able if base.variant == "qlora" and one.report.has_4_bits is False]
    if unable:
        return _without_4_bits(unable, able)
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


def _without_4_bits(unable: Sequence[KnownRunner], able: Sequence[KnownRunner]) -> PreflightLine:
    """The line of a qlora where all runners, or some, cannot hold a base in 4 bits."""
    why = "has no CUDA device, or lacks bitsandbytes"
    install = "the operator installs kolm's extra 'gpu' on a runner with CUDA (docs/client.md)"
    if len(unable) == len(able):
        return failed_line(
            Check.RUNNER,
            f"qlora holds the base in 4 bits, and no runner that trains this kind can: {unable[0].name} {why}.",
            code="not_on_this_device",
            what_to_do=f"Set train.causal.variant to lora, or {install}.",
        )
    return warning_line(
        Check.RUNNER,
        f"qlora holds the base in 4 bits; the runner {unable[0].name} {why}: a job that it takes fails.",
        code="not_on_this_device",
        what_to_do=f"Set train.causal.variant to lora, or {install}.",
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
    size = f" ({gb(looked.size_bytes)})" if looked.size_bytes else ""
    how = "holds" if looked.is_here else "may fetch"
    held = passed_line(Check.BASE, f"The runner {looked_by} {how} the base {base.name!r}{size}.")
    left_out = [one.name for one in trainers(base, runners) if one.report.is_offline and one.name not in holders]
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
        f"It is not known whether a runner holds or may fetch the base {base.name!r}: none has checked.",
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
    others = [runner for runner in trainers(base, runners) if runner.name != looked_by]
    if any(base.name in runner.report.bases for runner in others):
        return True
    was_offline = any(runner.name == looked_by and runner.report.is_offline for runner in runners)
    if looked.code == "unknown_base" and was_offline:
        return any(not runner.report.is_offline for runner in others)
    if looked.code in OF_THE_RUNNER:
        rooms = [runner.report.room_bytes for runner in others if not runner.report.is_offline]
        return any(room is None or room >= looked.size_bytes for room in rooms)
    return False


def trainers(base: BaseInUse, runners: Sequence[KnownRunner]) -> list[KnownRunner]:
    return [runner for runner in runners if trains(runner.report, is_causal=base.kind is TrialKind.CAUSAL)]


def _description(runner: KnownRunner) -> str:
    report = runner.report
    memory = "" if report.memory_bytes is None else f", {gb(report.memory_bytes)}"
    return f"{runner.name} ({report.device_name or report.device or 'device not known'}{memory})"


def gb(n_bytes: int) -> str:
    """
    >>> gb(15_200_000_000), gb(90_900_000)
    ('15.2 GB', '90.9 MB')
    """
    return f"{n_bytes / GB:.1f} GB" if n_bytes >= GB else mb(n_bytes)


def mb(n_bytes: int) -> str:
    return f"{n_bytes / 1_000_000:.1f} MB"
