"""The held-out answers that are wrong, filtered and counted: which rows, and which values are taken for which."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.differences import Value, closed_fields, read_value, value_text
from backend.domain.evaluation.generative import MIN_FIELD
from backend.domain.evaluation.heldout_answers import HeldoutAnswers, Judgement, Output
from backend.domain.spec.outputs import JsonOutput, LabelOutput

MAX_CONFUSIONS = 100
MAX_VALUE_CHARS = 200  # a longer text is a value of its own, which nothing is commonly taken for


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFilter:
    """The rows that are wanted; what is None does not matter. `gold` and `predicted` are JSON texts (`value_text`) of
    values that were confused, in `field` where that is there, of a label task in the label. `label`: gold or the
    answer has it. `field` alone: the answer differs from gold there. `check`: the answer fails it."""

    is_wrong: bool | None = None
    label: str | None = None
    field: str | None = None
    gold: str | None = None
    predicted: str | None = None
    check: str | None = None

    @classmethod
    def of_task(cls, output: Output, *, gold: str | None = None, predicted: str | None = None, **wanted: Any) -> Self:
        """Read a filter as a person types it: `gold` and `predicted` of a label task are names, "" for none of the
        labels; of a json task JSON or a text (`read_value`). Raises InvalidInput for what this kind of task has not."""
        if wanted.get("label") is not None and output.type != "label":
            raise InvalidInput(f"`label` is for label tasks; this task answers with {output.type}.")
        if wanted.get("field") is not None and output.type != "json":
            raise InvalidInput(f"`field` is for json tasks; this task answers with {output.type}.")
        if (gold is not None or predicted is not None) and output.type == "text":
            raise InvalidInput("`gold` and `predicted` are for label and json tasks; this task answers with text.")
        return cls(gold=_text_of(output, gold), predicted=_text_of(output, predicted), **wanted)


def _text_of(output: Output, text: str | None) -> str | None:
    if text is None:
        return None
    return value_text((text or None) if output.type == "label" else read_value(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueConfusion:
    """`count` times the answer has `predicted` where gold has `gold`; None is the absence of a value (of a label task:
    an answer that is none of the labels). `field` is "" of a label task; `is_closed`: the schema lets the field have a
    few values only."""

    field: str
    gold: Value | None
    predicted: Value | None
    count: int
    is_closed: bool

    @property
    def typed(self) -> tuple[str, str]:
        """Both values as a person types them for `AnswerFilter.of_task`."""
        if self.field:
            return value_text(self.gold), value_text(self.predicted)
        return str(self.gold or ""), str(self.predicted or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFigures:
    """One field or label: it stands in gold `n` times, was answered `predicted` times, `correct` of them rightly.
    `score_ppm` is a field's F1 or a label's recall, None of a label without gold; `n_wrong` rows have it wrong."""

    name: str
    n: int
    predicted: int
    correct: int
    score_ppm: int | None
    n_wrong: int
    is_judged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAnswers:
    """The counts of a compile's held-out answers: the commonest of `n_confusions`, in how many rows each field differs
    (of a label task: each label has another answer), how many answers fail each check."""

    n: int
    n_wrong: int
    n_invalid: int
    n_confusions: int
    confusions: tuple[ValueConfusion, ...]
    by_field: Mapping[str, int]
    by_check: Mapping[str, int]

    def parts(self, per_class: Sequence[Mapping[str, Any]]) -> list[PartFigures]:
        """The fields or labels of an evaluation as the gate ranks them, the worst first; fields that stand in fewer
        than MIN_FIELD answers, which it does not judge, come last."""
        parts = [
            PartFigures(
                name=one["label"],
                n=one["n"],
                predicted=one["predicted"],
                correct=one["correct"],
                score_ppm=one["f1_ppm"] if "f1_ppm" in one else one["recall_ppm"],
                n_wrong=self.by_field.get(one["label"], 0),
                is_judged=one.get("n_answers", MIN_FIELD) >= MIN_FIELD,
            )
            for one in per_class
        ]
        return sorted(parts, key=lambda part: (not part.is_judged, part.score_ppm or 0, part.n, part.name))


def rows_of(
    answers: HeldoutAnswers, wanted: AnswerFilter, *, after: int = -1, before: int | None = None
) -> Iterator[int]:
    """The rows that are wanted, from the one behind `after` on; with `before`, from the one ahead of it back."""
    n = len(answers)
    places = range(after + 1, n) if before is None else range(min(before, n) - 1, -1, -1)
    return (row for row in places if _fits(answers, row, wanted))


def _fits(answers: HeldoutAnswers, row: int, wanted: AnswerFilter) -> bool:
    if wanted.label is not None and wanted.label not in (answers.gold[row], answers.predictions[row]):
        return False
    judged = answers.judge(row)
    if wanted.is_wrong is not None and judged.is_wrong is not wanted.is_wrong:
        return False
    if wanted.check is not None and wanted.check not in judged.failed:
        return False
    if wanted.gold is None and wanted.predicted is None:
        return wanted.field is None or any(one.field == wanted.field for one in judged.differences)
    return _is_confused(judged, wanted)


def _is_confused(judged: Judgement, wanted: AnswerFilter) -> bool:
    return any(
        wanted.field in (None, field)
        and (wanted.gold is None or wanted.gold == value_text(gold))
        and (wanted.predicted is None or wanted.predicted == value_text(predicted))
        for field, (gold, predicted) in judged.confused
    )


def count_wrong(answers: HeldoutAnswers) -> WrongAnswers:
    """Count all rows, each judged once."""
    pairs, by_field, by_check = Counter[tuple[str, str, str]](), Counter[str](), Counter[str]()
    values: dict[str, Value | None] = {}
    n_wrong = n_invalid = 0
    for row in range(len(answers)):
        judged = answers.judge(row)
        by_check.update(set(judged.failed))
        n_invalid += bool(judged.failed)
        if not judged.is_wrong:
            continue
        n_wrong += 1
        by_field.update([answers.gold[row]] if judged.label else [one.field for one in judged.differences])
        for field, pair in judged.confused:
            gold, predicted = (value_text(value) for value in pair)
            if len(gold) <= MAX_VALUE_CHARS and len(predicted) <= MAX_VALUE_CHARS:
                pairs[field, gold, predicted] += 1
                values[gold], values[predicted] = pair
    return WrongAnswers(
        n=len(answers),
        n_wrong=n_wrong,
        n_invalid=n_invalid,
        n_confusions=len(pairs),
        confusions=_commonest(answers, pairs, values),
        by_field=by_field,
        by_check=by_check,
    )


def _commonest(
    answers: HeldoutAnswers, pairs: Counter[tuple[str, str, str]], values: Mapping[str, Value | None]
) -> tuple[ValueConfusion, ...]:
    """The confusions with the highest counts; of equal ones those of closed sets first."""
    output, closed = answers.output, frozenset[str]()
    if isinstance(output, LabelOutput):
        closed = frozenset({""})
    elif isinstance(output, JsonOutput):
        closed = closed_fields(output.answer_schema)
    ranked = sorted(pairs, key=lambda one: (-pairs[one], one[0] not in closed, one))
    return tuple(
        ValueConfusion(
            field=field,
            gold=values[gold],
            predicted=values[predicted],
            count=pairs[field, gold, predicted],
            is_closed=field in closed,
        )
        for field, gold, predicted in ranked[:MAX_CONFUSIONS]
    )
