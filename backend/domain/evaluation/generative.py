"""The measurements of a json or text task on held-out data: marks instead of hits, fields instead of classes.

A row's mark is between 0 and 1,000,000 ppm: of an exact match, a judge's verdict or a pass it is all or nothing, of
field F1 anything between. An answer that does not fit the schema, or fails a check, gets no mark: a caller could not
use it. The accuracy is the mean mark, and its interval that of a proportion with the same mean (Wilson): a variable
in [0, 1] varies at most as much as a proportion does, so for F1 the interval is rather too wide than too narrow.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import (
    BadAnswer,
    FieldCounts,
    consensus,
    count_matches,
    field_scores,
    fields_of,
    is_exact,
    parse_answer,
)
from backend.domain.answers.text_scores import rouge_l
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM, Baseline, ClassRow, interval_ppm
from backend.domain.spec.outputs import JsonOutput, TextOutput

MIN_FIELD = 5  # held-out answers: a field that stands in fewer of them is shown, and not judged
MAX_FIELDS = 200
MAX_TYPICAL = 200


class Verdict(StrEnum):
    """A judge's verdict on the student's answer beside gold."""

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"


def verdict_of(student_first: str | None, gold_first: str | None) -> Verdict:
    """Two preferences ("a" for the place shown first, "b", "tie", None for what could not be read), the second asked
    with the places swapped, as one verdict: a win takes both orders, or one and a tie; a judge that follows the place
    says nothing, which is a tie. What could not be read counts for gold.

    >>> verdict_of("a", "tie"), verdict_of("a", "a")
    (<Verdict.WIN: 'win'>, <Verdict.TIE: 'tie'>)
    """
    points = {"a": 1, "tie": 0}.get(student_first or "", -1) + {"b": 1, "tie": 0}.get(gold_first or "", -1)
    return Verdict.WIN if points > 0 else Verdict.LOSS if points < 0 else Verdict.TIE


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow(ClassRow):
    """One field on held-out data: it stands in `n_answers` gold answers, `n` times in all; it was `predicted` so often,
    `correct` of them rightly."""

    n_answers: int

    @property
    def f1_ppm(self) -> int:
        counts = FieldCounts(tp=self.correct, fp=self.predicted - self.correct, fn=self.n - self.correct)
        return counts.f1_ppm

    def to_json(self) -> dict[str, Any]:
        return ClassRow.to_json(self) | {"f1_ppm": self.f1_ppm}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanBaseline(Baseline):
    """Another model's answers to the same inputs: `marks_ppm` is the sum of their marks."""

    marks_ppm: int

    @property
    def accuracy_ppm(self) -> int:
        return self.marks_ppm // self.n if self.n else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeEvaluation:
    """`marks_ppm` is the sum of the rows' marks, `correct` counts the rows with all of it, `answered` the valid
    answers. `per_class` has one row a field (json), most frequent first. `counts` are diagnostics: whole numbers that
    nothing is decided on."""

    accuracy_kind: str
    n: int
    marks_ppm: int
    correct: int
    answered: int
    confidence: float
    per_class: tuple[FieldRow, ...] = ()
    baselines: tuple[MeanBaseline, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def accuracy_ppm(self) -> int:
        return self.marks_ppm // self.n if self.n else 0

    @property
    def interval_ppm(self) -> tuple[int, int]:
        return interval_ppm(self.marks_ppm / PPM, self.n, self.confidence)

    @property
    def validity_ppm(self) -> int:
        return self.answered * PPM // self.n if self.n else 0

    @property
    def worst_field(self) -> FieldRow | None:
        """The lowest F1 of the fields that stand in MIN_FIELD held-out answers or more."""
        judged = [row for row in self.per_class if row.n_answers >= MIN_FIELD]
        return min(judged, key=lambda row: (row.f1_ppm, row.n, row.label), default=None)

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval_ppm
        return {
            "accuracy_kind": self.accuracy_kind,
            "n": self.n,
            "correct": self.correct,
            "answered": self.answered,
            "accuracy_ppm": self.accuracy_ppm,
            "accuracy_low_ppm": low,
            "accuracy_high_ppm": high,
            "validity_ppm": self.validity_ppm,
            "confidence_ppm": round(self.confidence * PPM),
            "per_class": [row.to_json() for row in self.per_class],
            "fields": [{"field": row.label, "n": row.n, "f1_ppm": row.f1_ppm} for row in self.per_class],
            "confusions": [],
            "baselines": [
                {"name": b.name, "correct": b.correct, "n": b.n, "accuracy_ppm": b.accuracy_ppm} for b in self.baselines
            ],
            "counts": dict(self.counts),
        }


def evaluate_json(
    output: JsonOutput,
    gold: Sequence[str],
    outputs: Sequence[str],
    *,
    passed: Sequence[bool],
    baselines: Mapping[str, Sequence[str]] | None = None,
    confidence: float = 0.95,
) -> GenerativeEvaluation:
    """Compare answers with gold, row by row, as texts. `passed` says of each answer whether it fits the schema and
    passes the checks; what the baselines answer is held to the schema alone, which flatters them if anything.

    Raises InvalidInput for sequences of different lengths and for gold that is no answer.
    """
    others = baselines or {}
    _same_length(gold, outputs, passed, *others.values())
    truths = [_gold_value(text) for text in gold]
    fits = validator(output.answer_schema)
    answers = [_value(text, ok) for text, ok in zip(outputs, passed, strict=True)]
    marks = [mark_of(output.accuracy, a, t) for a, t in zip(answers, truths, strict=True)]
    exact = sum(a is not None and is_exact(a, t) for a, t in zip(answers, truths, strict=True))
    f1 = sum(mark_of("field_f1", a, t) for a, t in zip(answers, truths, strict=True))
    return GenerativeEvaluation(
        accuracy_kind=output.accuracy,
        n=len(gold),
        marks_ppm=sum(marks),
        correct=exact,
        answered=sum(a is not None for a in answers),
        confidence=confidence,
        per_class=_field_rows(truths, answers, confidence),
        baselines=tuple(_json_baseline(name, output, truths, theirs, fits) for name, theirs in others.items()),
        counts={"n_exact": exact, "mean_field_f1_ppm": f1 // len(gold) if gold else 0},
    )


def json_marks(
    output: JsonOutput, gold: Sequence[str], answers: Sequence[str], *, passed: Sequence[bool] | None = None
) -> list[int]:
    """The mark of each answer, ppm; without `passed`, held to the schema alone. Raises as `evaluate_json`."""
    _same_length(gold, answers, *([] if passed is None else [passed]))
    fits = validator(output.answer_schema)
    values = [_value(text, True) for text in answers]
    good = [value is not None and not fits(value) for value in values] if passed is None else passed
    rows = zip(values, good, gold, strict=True)
    return [mark_of(output.accuracy, value if is_good else None, _gold_value(truth)) for value, is_good, truth in rows]


def typical_answer(answers: Sequence[str]) -> str | None:
    """The answer that is most like all of them (the medoid by field F1), among at most MAX_TYPICAL spread evenly over
    them; None where there is none."""
    n = min(MAX_TYPICAL, len(answers))
    shown = [answers[i * len(answers) // n] for i in range(n)]
    medoid = consensus([_value(text, True) for text in shown], n)
    return None if medoid.index is None else shown[medoid.index]


def _same_length(*rows: Sequence[object]) -> None:
    if len(set(map(len, rows))) > 1:
        raise InvalidInput("Gold, answers, checks and baselines must have one row for each held-out example.")


def _gold_value(text: str) -> Any:
    try:
        return parse_answer(text)
    except BadAnswer as fault:
        raise InvalidInput(f"A held-out example's answer cannot be used: {fault}.") from fault


def _value(text: str, is_valid: bool) -> Any:
    """The answer's value; None where it is not valid."""
    if not is_valid:
        return None
    try:
        return parse_answer(text)
    except BadAnswer:
        return None


def mark_of(accuracy: str, answer: Any, truth: Any) -> int:
    """The mark of one answer's value, ppm; None stands for one that is not valid."""
    if answer is None:
        return 0
    if accuracy == "exact":
        return PPM * is_exact(answer, truth)
    return field_scores(answer, truth).f1_ppm


def _json_baseline(
    name: str, output: JsonOutput, truths: Sequence[Any], theirs: Sequence[str], fits: Any
) -> MeanBaseline:
    values = [_value(text, True) for text in theirs]
    valid = [None if value is None or fits(value) else value for value in values]
    pairs = list(zip(valid, truths, strict=True))
    return MeanBaseline(
        name=name,
        correct=sum(v is not None and is_exact(v, t) for v, t in pairs),
        n=len(pairs),
        marks_ppm=sum(mark_of(output.accuracy, v, t) for v, t in pairs),
    )


def _field_rows(truths: Sequence[Any], answers: Sequence[Any], confidence: float) -> tuple[FieldRow, ...]:
    """Summed over the rows; a field that only answers have is shown too, with n = 0."""
    n_answers, n, predicted, correct = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for truth, answer in zip(truths, answers, strict=True):
        ours, theirs = fields_of(truth), fields_of(answer)
        n_answers.update(ours.keys())
        for path in ours.keys() | theirs.keys():
            counts = count_matches(theirs.get(path, Counter()), ours.get(path, Counter()))
            n[path] += counts.tp + counts.fn
            predicted[path] += counts.tp + counts.fp
            correct[path] += counts.tp
    kept = sorted(n, key=lambda path: (-n[path], -predicted[path], path))[:MAX_FIELDS]
    bounds = {path: interval_ppm(correct[path], n[path], confidence) for path in kept}
    return tuple(
        FieldRow(
            label=path or "/",
            n_answers=n_answers[path],
            n=n[path],
            predicted=predicted[path],
            correct=correct[path],
            recall_low_ppm=bounds[path][0],
            recall_high_ppm=bounds[path][1],
        )
        for path in kept
    )


def are_right(output: TextOutput, gold: Sequence[str], answers: Sequence[str], passed: Sequence[bool]) -> list[bool]:
    """Say which texts are right where no judge decides: those that pass every check and, where they are to be exact,
    are gold's but for white space at the ends."""
    same = [
        output.accuracy != "exact" or one.strip() == truth.strip() for one, truth in zip(answers, gold, strict=True)
    ]
    return [ok and alike for ok, alike in zip(passed, same, strict=True)]


def evaluate_text(
    output: TextOutput,
    gold: Sequence[str],
    outputs: Sequence[str],
    *,
    passed: Sequence[bool],
    wins: Sequence[str | None] = (),
    baselines: Mapping[str, Sequence[bool]] | None = None,
    confidence: float = 0.95,
) -> GenerativeEvaluation:
    """Texts beside gold. Where the spec's accuracy is the judge's, `wins` has a Verdict for each row (None counts as a
    loss) and the accuracy is the share of wins and ties among all rows; else it is the share of right ones
    (`are_right`).

    `baselines` says which of another model's answers are right; with a judge there is none, since it would have to be
    asked about them. ROUGE-L beside gold is a diagnostic. Raises InvalidInput for sequences of different lengths.
    """
    is_judged = output.accuracy == "judge"
    others = {} if is_judged else dict(baselines or {})
    _same_length(gold, outputs, passed, *([wins] if is_judged else []), *others.values())
    verdicts = Counter(str(v or Verdict.LOSS) for v in wins) if is_judged else Counter[str]()
    is_good = [v in (Verdict.WIN, Verdict.TIE) for v in wins] if is_judged else are_right(output, gold, outputs, passed)
    correct = sum(ok and good for ok, good in zip(passed, is_good, strict=True))
    alike = sum(rouge_l(theirs, ours) for theirs, ours in zip(outputs, gold, strict=True))
    counts = {f"n_{verdict.value}": verdicts[verdict.value] for verdict in Verdict} if is_judged else {}
    return GenerativeEvaluation(
        accuracy_kind=output.accuracy,
        n=len(gold),
        marks_ppm=correct * PPM,
        correct=correct,
        answered=sum(map(bool, passed)),
        confidence=confidence,
        baselines=tuple(
            MeanBaseline(
                name=name, correct=sum(map(bool, theirs)), n=len(theirs), marks_ppm=sum(map(bool, theirs)) * PPM
            )
            for name, theirs in others.items()
        ),
        counts=counts | {"mean_rouge_l_ppm": alike // len(gold) if gold else 0},
    )
