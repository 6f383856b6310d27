"""The lines about what a training takes: whether the base fits into a device, and whether what the training sends fits
through and onto the store.

Sizes come of the base itself (its config, its files' headers, or the sizes that the hub announces), as a runner reports
them, by `adapter_sizes`. Where none did, the line says that it is not known.
"""

from collections.abc import Callable, Mapping, Sequence

from backend.domain.jobs.base_checks import CheckBaseResult, RunnerReport
from backend.domain.planning.adapter_sizes import (
    CONFIG_NEEDED,
    PARAMETERS_A_RANK,
    TrainingSizes,
    sizes_of_config,
    sizes_of_count,
)
from backend.domain.planning.preflight.base_lines import BaseInUse, KnownRunner, gb, mb, trainers
from backend.domain.planning.preflight.lines import (
    Check,
    PreflightLine,
    failed_line,
    passed_line,
    skipped_line,
    warning_line,
)
from backend.domain.planning.training_memory import Device, least_bytes, most_tokens, step_bytes
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.models import Spec

ANSWER_SHARES = {"label": 1 / 16, "json": 1 / 4, "text": 1 / 4}  # of an example's tokens; assumed


def memory_line(
    spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, runners: Sequence[KnownRunner]
) -> PreflightLine:
    """Tell whether a training of this base fits into a device that takes it: on a GPU its weights, adapter and
    optimiser (a step that does not fit is made in halves), on a processor a whole batch as well."""
    able = [runner for runner in trainers(base, runners) if runner.report.memory_bytes is not None]
    if looked is None or not looked.n_parameters or not able:
        lacking = "how large the base is" if looked is None or not looked.n_parameters else "what memory runners have"
        return warning_line(
            Check.MEMORY,
            f"It is not known {lacking}.",
            code="memory_not_known",
            what_to_do=f"Take a smaller {base.field} where you doubt it.",
        )
    needs = {runner.name: foretold_memory(spec, base, looked, runner.report) for runner in able}
    fitting = [runner for runner in able if needs[runner.name] <= (runner.report.memory_bytes or 0)]
    most = max(able, key=lambda runner: runner.report.memory_bytes or 0)
    batch = _batch_bytes(spec, base, looked, most.report)
    named = f"Weights, adapter and optimiser of {base.name!r}"
    if batch:
        named = (
            f"Weights, adapter, optimiser and a batch of {spec.train.causal.tokens_per_step} tokens of {base.name!r}"
        )
    what = f"{named} need {gb(needs[most.name])}"
    if not fitting:
        count = "the only runner" if len(able) == 1 else f"the largest of {len(able)} runners"
        return failed_line(
            Check.MEMORY,
            f"{what}, and {count}, {most.name}, has {gb(most.report.memory_bytes or 0)}.",
            code="base_exceeds_memory",
            what_to_do=_memory_advice(spec, base, looked, most.report, batch),
        )
    small = [runner.name for runner in able if runner not in fitting]
    if small:
        return warning_line(
            Check.MEMORY,
            f"{what}; the runner {fitting[0].name} has room for it and {small[0]} has not: a job that it takes fails.",
            code="base_exceeds_memory",
            what_to_do="The operator lets the small runner take other kinds of jobs (KOLM_RUNNER_KINDS).",
        )
    unsure = "" if batch or most.report.device == "cuda" else " What a batch takes on top is not known."
    return passed_line(Check.MEMORY, f"{what}; {most.name} has {gb(most.report.memory_bytes or 0)}.{unsure}")


def foretold_memory(spec: Spec, base: BaseInUse, looked: CheckBaseResult, report: RunnerReport) -> int:
    """The bytes that a training and its evaluation take on this runner, as far as the base's config says. An evaluation
    holds the base whole, also where a training held it in 4 bits."""
    training = _least_bytes(spec, base, looked, report) + _batch_bytes(spec, base, looked, report)
    return max(training, looked.n_parameters * (2 if report.device == "cuda" else 4))


def _least_bytes(spec: Spec, base: BaseInUse, looked: CheckBaseResult, report: RunnerReport) -> int:
    sizes = training_sizes(spec, base, looked)
    is_causal = base.kind is TrialKind.CAUSAL
    return least_bytes(
        looked.n_parameters,
        0 if sizes is None else sizes.parameters,
        Device(is_cuda=report.device == "cuda", has_bf16=report.has_bf16),
        variant=base.variant,
        precision=spec.train.causal.precision if is_causal else spec.train.precision,
        config=_config_of(looked),
    )


def _batch_bytes(spec: Spec, base: BaseInUse, looked: CheckBaseResult, report: RunnerReport) -> int:
    """Bytes of a whole batch; 0 where a device makes it smaller, and where the widths of the base are not known."""
    config = _config_of(looked)
    if report.device == "cuda" or base.kind is not TrialKind.CAUSAL or not config:
        return 0
    return step_bytes(config, spec.train.causal.tokens_per_step, answer_share=ANSWER_SHARES[spec.output.type])


def _memory_advice(spec: Spec, base: BaseInUse, looked: CheckBaseResult, report: RunnerReport, batch: int) -> str:
    room = (report.memory_bytes or 0) - _least_bytes(spec, base, looked, report)
    tokens = 0
    if batch and room > 0:
        tokens = most_tokens(_config_of(looked), room, answer_share=ANSWER_SHARES[spec.output.type])
    if tokens:
        return f"Lower train.causal.tokens_per_step to {tokens} or less, or take a smaller {base.field}."
    return f"Take a smaller {base.field} or a larger runner."


def transfer_line(spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, *, limit_bytes: int) -> PreflightLine:
    """Tell whether adapter and checkpoint are within what a file may have. Without the adapter there is no artifact;
    without checkpoints a training that is cut off begins again."""
    sizes = training_sizes(spec, base, looked)
    if sizes is None:
        return warning_line(
            Check.TRANSFER,
            f"It is not known how large an adapter of {base.name!r} is; a file may have {mb(limit_bytes)}.",
            code="adapter_size_not_known",
            what_to_do=f"Keep {_rank_field(base)} at its default where the base is large.",
        )
    what = f"An adapter of {base.name!r} with rank {base.rank} has {mb(sizes.adapter)}"
    unsure = _unknown_of(spec, base, looked, sizes)

    def advice(fits: Callable[[TrainingSizes], bool], otherwise: str) -> str:
        rank = _largest_rank(spec, base, looked, fits)
        return f"Lower {_rank_field(base)} to {rank} or less, or {otherwise}." if rank else f"{_upper(otherwise)}."

    if sizes.adapter > limit_bytes:
        return failed_line(
            Check.TRANSFER,
            f"{what}; a file may have {mb(limit_bytes)}.{unsure}",
            code="adapter_too_large",
            what_to_do=advice(lambda one: one.adapter <= limit_bytes, f"take a smaller {base.field}"),
        )
    if sizes.checkpoint > limit_bytes:
        return warning_line(
            Check.TRANSFER,
            f"{what}, and its checkpoints {mb(sizes.checkpoint_8bit)} with an 8-bit optimiser, "
            f"{mb(sizes.checkpoint)} without; a file may have {mb(limit_bytes)}. Without checkpoints a training that "
            f"is cut off begins again.{unsure}",
            code="checkpoint_too_large",
            what_to_do=advice(lambda one: one.checkpoint <= limit_bytes, "let it be"),
        )
    return passed_line(
        Check.TRANSFER,
        f"{what} and its checkpoints {mb(sizes.checkpoint)} at most; a file may have {mb(limit_bytes)}.{unsure}",
    )


def disk_line(spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, *, free_bytes: int | None) -> PreflightLine:
    """Tell whether the store of this installation has room for two checkpoints and the adapter, held at a time."""
    if free_bytes is None:
        return skipped_line(Check.DISK, "The free space of the installation's store is not known at the moment.")
    sizes = training_sizes(spec, base, looked)
    has = f"The installation's store has {gb(free_bytes)} left"
    if sizes is None:
        return skipped_line(Check.DISK, f"{has}; how much of it this compile takes is not known.")
    needed = 2 * sizes.checkpoint + sizes.adapter
    if needed > free_bytes:
        return failed_line(
            Check.DISK,
            f"{has}, and checkpoints and adapter take {gb(needed)}.",
            code="blob_store_full",
            what_to_do="The operator gives the store a larger disk; until then take a smaller base or rank.",
        )
    return passed_line(Check.DISK, f"{has}; checkpoints and adapter take {mb(needed)} of it at most.")


def training_sizes(
    spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, *, rank: int | None = None
) -> TrainingSizes | None:
    """The sizes of a training by the base's own config, else by its layers as a runner counted them, else by what this
    release knows of the base; None where nobody knows."""
    rank = base.rank if rank is None else rank
    if config := _config_of(looked):
        return sizes_of_config(config, rank=rank, variant=base.variant)
    counted = 0 if looked is None else looked.adapter_parameters
    n = counted or PARAMETERS_A_RANK.get(base.name.partition("@")[0], 0)
    return sizes_of_count(n, rank=rank) if n else None


def _config_of(looked: CheckBaseResult | None) -> Mapping[str, int]:
    """The numbers of the base's config; none where a runner gave a part of them."""
    config = {} if looked is None else looked.config
    return config if config.keys() >= set(CONFIG_NEEDED) else {}


def _unknown_of(spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, sizes: TrainingSizes) -> str:
    """Say what the sizes do not know, as a sentence; "" where they are the base's own."""
    lacking = []
    if looked is None or not (_config_of(looked) or looked.adapter_parameters):
        lacking.append("no runner has checked the base, so its size is the one that this release knows by its name")
    if base.variant == "dora" and not sizes.has_magnitudes:
        lacking.append("DoRA's magnitudes come on top, and how many there are is not known")
    return f" {_upper('; '.join(lacking))}." if lacking else ""


def _largest_rank(
    spec: Spec, base: BaseInUse, looked: CheckBaseResult | None, fits: Callable[[TrainingSizes], bool]
) -> int:
    """The largest rank below the spec's whose sizes fit; 0 where none does."""
    for rank in range(base.rank - 1, 0, -1):
        sizes = training_sizes(spec, base, looked, rank=rank)
        if sizes is not None and fits(sizes):
            return rank
    return 0


def _rank_field(base: BaseInUse) -> str:
    return base.field.removesuffix("base") + "rank"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
