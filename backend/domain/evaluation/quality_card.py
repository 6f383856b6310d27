"""The quality card of a compile: its student beside what else could answer, each with accuracy, time and price, and
after how many answers the compile has paid for itself.

All figures are measured or billed, and whole numbers, so that the card can be signed. What was not measured is None,
and where that leaves a question open the card says why. A price is in micro-USD for 1,000 answers, which is the same
number as nano-USD for one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.abstaining import SureAnswers
from backend.domain.evaluation.alternatives import WORDS, Alternative, AlternativeName
from backend.domain.evaluation.classification import PPM, Evaluation, interval_ppm
from backend.domain.evaluation.kscore import AnyEvaluation

VERSION = 1
STUDENT = "student"
NANO_PER_MICRO = 1000
# what is always the same answer takes no time and costs nothing
CONSTANT = frozenset((AlternativeName.MAJORITY, AlternativeName.COMMON_ANSWER))
# those whose answer is one pass of the frozen base and one head
HEADS = frozenset((AlternativeName.FROZEN, AlternativeName.FROZEN_RANDOM, AlternativeName.GOLD_ONLY))
ORDER = (
    AlternativeName.TEACHER,
    AlternativeName.FROZEN,
    AlternativeName.FROZEN_RANDOM,
    AlternativeName.GOLD_ONLY,
    AlternativeName.BASE,
    AlternativeName.COMMON_ANSWER,
    AlternativeName.MAJORITY,
)


class TimeKind(StrEnum):
    """The kind of a row's time: the model's own, on the reference processor; or from the request to its answer."""

    OWN = "own"
    REQUEST = "request"


class Basis(StrEnum):
    """The calls that the teacher's price is of: those about held-out inputs, one answer each; or, where none was
    asked, those that labeled, by the single answer."""

    HELD_OUT = "held_out_calls"
    LABELING = "labeling_calls"


class Place(StrEnum):
    """The place where the student answers: on a runner of this installation, by the second; or at home, for nothing."""

    RUNNER = "runner"
    HOME = "home"


class WhyNot(StrEnum):
    """The reason why a compile never pays for itself, or nobody can say when."""

    NOT_CHEAPER = "student_not_cheaper"
    NO_PRICE = "teacher_not_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The own time of one answer, in microseconds, and its price in nano-USD."""

    answer_us: int
    nanousd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherCost:
    """The teacher's price of one answer in nano-USD, from `n_calls` journaled calls, and the median time from a request
    to its one answer; None where calls were batched or asked for several answers."""

    nanousd: int
    n_calls: int
    basis: Basis
    answer_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One line of the card. The accuracy is of `n` held-out rows with its interval; None where nobody asked."""

    name: str
    words: str
    n: int = 0
    accuracy_ppm: int | None = None
    low_ppm: int | None = None
    high_ppm: int | None = None
    n_trained: int | None = None
    answer_us: int | None = None
    time_kind: TimeKind | None = None
    per_1000_microusd: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The number of answers after which the compile has cost less than its teacher would have; None with the reason
    where there is none."""

    place: Place
    per_1000_microusd: int
    calls: int | None
    why_not: WhyNot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCard:
    """`accuracy_kind` names what a right answer of the task is: label, or the spec's own kind of accuracy."""

    task_type: str
    accuracy_kind: str
    confidence_ppm: int
    compile_microusd: int
    price_version: str
    rows: tuple[CardRow, ...]
    break_even: tuple[BreakEven, ...]
    teacher_basis: Basis | None
    n_teacher_calls: int
    sure: SureAnswers | None = None

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        rows = [{name: item for name, item in row.items() if name != "n_trained" or item} for row in value["rows"]]
        parts = {"rows": rows, "break_even": list(value["break_even"])}
        return {"version": VERSION} | value | parts | {"sure": None if self.sure is None else self.sure.to_json()}


def quality_card(
    *,
    task_type: str,
    evaluation: AnyEvaluation,
    alternatives: Sequence[Alternative],
    student: Spent,
    head: Spent | None,
    teacher: TeacherCost | None,
    compile_microusd: int,
    price_version: str,
    sure: SureAnswers | None = None,
) -> QualityCard:
    """The card of a compile. `student` is what an answer takes and costs on a runner, `head` the same of a head on the
    frozen base (None: not measured), `compile_microusd` all that the compile cost, `sure` what a task that abstains is
    sure of. Raises InvalidInput for an amount below 0."""
    amounts = (student.answer_us, student.nanousd, compile_microusd, 0 if teacher is None else teacher.nanousd)
    if min(amounts) < 0:
        raise InvalidInput("A quality card needs times and amounts of 0 or more.")
    by_name = {one.name: one for one in alternatives}
    others = [_other(name, by_name.get(name), evaluation.confidence, head, teacher) for name in ORDER]
    rows = (_student(evaluation, student), *(row for row in others if row is not None))
    places = {Place.RUNNER: student.nanousd, Place.HOME: 0}
    return QualityCard(
        task_type=task_type,
        accuracy_kind="label" if isinstance(evaluation, Evaluation) else evaluation.accuracy_kind,
        confidence_ppm=round(evaluation.confidence * PPM),
        compile_microusd=compile_microusd,
        price_version=price_version,
        rows=rows,
        break_even=tuple(
            break_even(place, compile_microusd, nanousd, None if teacher is None else teacher.nanousd)
            for place, nanousd in places.items()
        ),
        teacher_basis=None if teacher is None else teacher.basis,
        n_teacher_calls=0 if teacher is None else teacher.n_calls,
        sure=sure,
    )


def break_even(place: Place, compile_microusd: int, nanousd: int, teacher_nanousd: int | None) -> BreakEven:
    """The first number of answers at which the compile and as many of the student's answers cost no more than as many
    of the teacher's.

    >>> break_even(Place.HOME, 5_000, 0, 30_000).calls, break_even(Place.RUNNER, 5_000, 30_000, 30_000).calls
    (167, None)
    """
    if teacher_nanousd is None:
        return BreakEven(place=place, per_1000_microusd=nanousd, calls=None, why_not=WhyNot.NO_PRICE)
    if teacher_nanousd <= nanousd:
        return BreakEven(place=place, per_1000_microusd=nanousd, calls=None, why_not=WhyNot.NOT_CHEAPER)
    calls = -(-compile_microusd * NANO_PER_MICRO // (teacher_nanousd - nanousd))
    return BreakEven(place=place, per_1000_microusd=nanousd, calls=calls)


def _student(evaluation: AnyEvaluation, student: Spent) -> CardRow:
    low, high = evaluation.interval_ppm
    return CardRow(
        name=STUDENT,
        words="the student",
        n=evaluation.n,
        accuracy_ppm=evaluation.accuracy_ppm,
        low_ppm=low,
        high_ppm=high,
        answer_us=student.answer_us,
        time_kind=TimeKind.OWN,
        per_1000_microusd=student.nanousd,
    )


def _other(
    name: AlternativeName,
    measured: Alternative | None,
    confidence: float,
    head: Spent | None,
    teacher: TeacherCost | None,
) -> CardRow | None:
    """The row of an alternative; of a teacher that answered no held-out row, but whose price is known, without an
    accuracy. None where there is nothing to say."""
    is_priced = name is AlternativeName.TEACHER and teacher is not None
    if measured is None and not is_priced:
        return None
    costs = _costs(name, head, teacher)
    if measured is None or not measured.n:
        return CardRow(name=name.value, words=WORDS[name], **costs)
    low, high = interval_ppm(measured.marks_ppm / PPM, measured.n, confidence)
    return CardRow(
        name=name.value,
        words=WORDS[name],
        n=measured.n,
        accuracy_ppm=measured.accuracy_ppm,
        low_ppm=low,
        high_ppm=high,
        n_trained=measured.n_trained,
        **costs,
    )


def _costs(name: AlternativeName, head: Spent | None, teacher: TeacherCost | None) -> Mapping[str, Any]:
    """The time and price of an alternative's answer; nothing where they were not measured."""
    if name in CONSTANT:
        return {"answer_us": 0, "time_kind": TimeKind.OWN, "per_1000_microusd": 0}
    if name in HEADS and head is not None:
        return {"answer_us": head.answer_us, "time_kind": TimeKind.OWN, "per_1000_microusd": head.nanousd}
    if name is AlternativeName.TEACHER and teacher is not None:
        time_kind = None if teacher.answer_us is None else TimeKind.REQUEST
        return {"answer_us": teacher.answer_us, "time_kind": time_kind, "per_1000_microusd": teacher.nanousd}
    return {}
