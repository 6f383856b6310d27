"""The slices of a compile as a judge hears of them."""

from collections.abc import Sequence

from backend.compiles.models import Slice
from backend.domain.spec.parsing import Spec
from workers.candidates.slices import slice_spec
from workers.teachers.judges.judged_slices import JudgedSlice, JudgeQuestion, judge_question
from workers.teachers.prompts.candidate_and_label import slice_lines


def described_slices(spec: Spec, filled: Sequence[Slice]) -> JudgeQuestion:
    """The question about slices that nothing is asked about yet: what every request begins with."""
    return judge_question(spec, tuple(describe(slice_row) for slice_row in filled), seed=None)


def describe(slice_row: Slice) -> JudgedSlice:
    """The slice by its lines alone."""
    return JudgedSlice(key=slice_row.position, lines=tuple(slice_lines(slice_spec(slice_row))))
