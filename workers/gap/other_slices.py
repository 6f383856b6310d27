"""The candidates of the other slices: their labels tell `auto` which of a slice's own the rest of the compile
contradicts. A slice that names its label asked for texts of that label alone, so its own pool says nothing about it.
"""

from typing import Any

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.selection.options import Method
from backend.domain.selection.select import Beside
from workers.candidates.ranking import stack
from workers.step.durable import CompileRun

MAX_BESIDE = 5_000  # a slice's selection costs one linkage over all of them
_SCORED = (CandidateState.VALID, CandidateState.PICKED, CandidateState.DROPPED)


def labels_beside(run: CompileRun, slice_row: Slice, n: int) -> dict[str, Any]:
    """The labels of a slice's `n` candidates and the candidates beside them, as `select` takes both; nothing where no
    label was asked for, or the spec names a method."""
    if slice_row.is_captured or not slice_row.label or Method(run.spec.sampling.method) is not Method.AUTO:
        return {}
    others = Candidate.objects.filter(
        tenant_id=run.tenant_id,
        compile_id=run.compile_id,
        slice__is_captured=False,
        state__in=_SCORED,
        score__isnull=False,
    )
    others = others.exclude(slice=slice_row).exclude(slice__label="").order_by("text_key")
    with run.transaction():
        rows = list(others.values_list("embedding", "score", "text_key", "slice__label")[: MAX_BESIDE + 1])
    if not rows or len(rows) > MAX_BESIDE:
        return {}
    embeddings, scores, keys, labels = zip(*rows, strict=True)
    beside = Beside(embeddings=stack(list(embeddings)), scores=scores, keys=keys, labels=labels)
    return {"labels": [slice_row.label] * n, "stratify": False, "beside": beside}
