"""The reach of a gate: what a model has that makes no mistake, answers at once and costs nothing, with the
smallest adapter of its base and rank. What not even that reaches is said before anything is paid for.

Only bases whose shapes are known are weighed; another one may be small, and is believed.
"""

from backend.domain.errors import InvalidSpec, Problem
from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.gate_floors import required_ppm
from backend.domain.evaluation.kscore import WEIGHTS, composite_ppm, size_ppm
from backend.domain.evaluation.own_time import Unit
from backend.domain.number_words import score
from backend.domain.planning.adapter_sizes import PARAMETERS_A_RANK, sizes_of_count
from backend.domain.planning.trials import TrialKind, first_kind, may_be_causal, part_of
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import LabelOutput

_NAMES = {TrialKind.ENCODER: "train", TrialKind.SPANS: "train.spans", TrialKind.CAUSAL: "train.causal"}
_BASES = {
    TrialKind.ENCODER: "train.base",
    TrialKind.SPANS: "train.base",
    TrialKind.CAUSAL: "train.causal.base",
}


def check_reachable(spec: Spec) -> None:
    """Raises InvalidSpec(gate_unreachable) where the declared gate.k_min is beyond every trial of this spec."""
    if spec.gate.k_min is None:
        return
    kinds = {first_kind(spec)} | ({TrialKind.CAUSAL} if may_be_causal(spec) else set())
    most = {kind: most_k_ppm(spec, kind) for kind in kinds}
    kind = max(most, key=lambda one: most[one])
    if most[kind] >= required_ppm(spec.gate.k_min):
        return
    part, name = part_of(spec, kind), _NAMES[kind]
    mended = f"lower gate.k_min to {most[kind] // 1000 / 1000:g} or less"
    smaller = f", lower {name}.rank from {part.rank}" if part.rank > 1 else ""
    message = (
        f"not even a perfect model could reach a K-score of {score(required_ppm(spec.gate.k_min))}: with the adapter "
        f"of this base and rank it has at most {score(most[kind])}; {mended}{smaller}, or take a "
        f"smaller {_BASES[kind]}."
    )
    problem = Problem(pointer="/gate/k_min", message=message, code="gate_unreachable")
    raise InvalidSpec(f"The spec is not valid: /gate/k_min: {message}", problems=(problem,))


def most_k_ppm(spec: Spec, kind: TrialKind) -> int:
    """The K-score of a perfect model of this kind of base, ppm: all axes 1 but that of its size."""
    base = spec.train.causal.base if kind is TrialKind.CAUSAL else spec.train.base
    least_bytes = sizes_of_count(PARAMETERS_A_RANK.get(base, 0), rank=part_of(spec, kind).rank).adapter
    unit = Unit.TOKEN if kind is TrialKind.CAUSAL and not isinstance(spec.output, LabelOutput) else Unit.ANSWER
    return composite_ppm(dict.fromkeys(WEIGHTS, PPM) | {"size": size_ppm(least_bytes, unit)})
