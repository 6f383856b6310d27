"""The held-out answers of a compile that was evaluated, whatever its gate said: read from the blobs of two steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from backend.blobs import get_json, get_jsonl
from backend.compiles.models import Compile, StepRun
from backend.domain.errors import Conflict
from backend.domain.evaluation.heldout_answers import HeldoutAnswer, HeldoutAnswers, Output
from backend.domain.evaluation.wrong_answers import AnswerFilter, PartFigures, WrongAnswers, count_wrong, rows_of
from backend.domain.lifecycle import StepName, StepStatus
from backend.domain.planning.step_outputs import EvaluationOut, SlicingOut
from backend.domain.spec.parsing import read_stored_spec

NOT_EVALUATED = "The held-out inputs are not answered yet; that is the step `evaluation`. This compile is {status}."
_OUTPUT: TypeAdapter[Output] = TypeAdapter(Output)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutBlobs:
    """The digests of a compile's held-out rows and of the measurement of its answers to them, and the evaluation's
    table by field or label."""

    gold: str
    evals: str
    per_class: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusions:
    """The faults of a compile's held-out answers: the counts, and the fields or labels, the worst first."""

    task: str
    counts: WrongAnswers
    parts: list[PartFigures]

    @property
    def worst(self) -> PartFigures | None:
        """The field or label that the gate judges as the worst; None of a text task."""
        return next((part for part in self.parts if part.is_judged), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPage:
    """Some rows in their order; `has_more`: there are others beyond, in the direction of the walk."""

    answers: list[HeldoutAnswer]
    has_more: bool


def heldout_blobs(row: Compile) -> HeldoutBlobs | None:
    """Find where the answers are; None while the compile is not evaluated."""
    names = (StepName.SLICING, StepName.EVALUATION)
    steps = StepRun.objects.filter(tenant_id=row.tenant_id, compile=row, name__in=names, status=StepStatus.SUCCEEDED)
    outputs = {step.name: step.output for step in steps}
    if len(outputs) < len(names):
        return None
    evaluated = EvaluationOut.from_json(outputs[StepName.EVALUATION])
    gold = SlicingOut.from_json(outputs[StepName.SLICING]).gold_heldout
    return HeldoutBlobs(gold=gold, evals=evaluated.evals, per_class=evaluated.figures.get("per_class", ()))


def require_blobs(row: Compile) -> HeldoutBlobs:
    """Find where the answers are. Raises Conflict while the compile is not evaluated."""
    blobs = heldout_blobs(row)
    if blobs is None or not blobs.evals:
        raise Conflict(NOT_EVALUATED.format(status=row.status), code="not_evaluated")
    return blobs


def heldout_answers(row: Compile) -> HeldoutAnswers:
    """Read all answers; none is judged yet. Raises Conflict while the compile is not evaluated."""
    blobs = require_blobs(row)
    return _read(row.tenant_id, blobs.gold, blobs.evals, read_stored_spec(row.spec).output)


def page_of_answers(
    answers: HeldoutAnswers, wanted: AnswerFilter, *, limit: int, after: int | None = None, before: int | None = None
) -> AnswerPage:
    """Judge as many rows as a page takes, from one cursor on; `before` walks back."""
    rows = list(islice(rows_of(answers, wanted, after=-1 if after is None else after, before=before), limit + 1))
    page = rows[:limit] if before is None else rows[:limit][::-1]
    return AnswerPage(answers=[answers.answer(row) for row in page], has_more=len(rows) > limit)


def confusions_of(row: Compile) -> Confusions:
    """Count what is wrong. Raises Conflict while the compile is not evaluated."""
    blobs, output = require_blobs(row), read_stored_spec(row.spec).output
    counts = _count(row.tenant_id, blobs.gold, blobs.evals, output.model_dump_json(by_alias=True))
    return Confusions(task=output.type, counts=counts, parts=counts.parts(blobs.per_class))


def _read(tenant_id: UUID, gold: str, evals: str, output: Output) -> HeldoutAnswers:
    return HeldoutAnswers.from_json(output, get_jsonl(tenant_id, gold), get_json(tenant_id, evals))


@lru_cache(maxsize=32)
def _count(tenant_id: UUID, gold: str, evals: str, output: str) -> WrongAnswers:
    """Count once for all pages of a list: what a digest names never changes, and ten thousand wrong rows take 2 s."""
    return count_wrong(_read(tenant_id, gold, evals, _OUTPUT.validate_json(output)))
