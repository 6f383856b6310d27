"""The answers to held-out inputs, one by one: gold, what was answered, and what is wrong with it.

A row is judged when it is asked for, and an answer that is spelt as gold is not taken apart: ten thousand rows cost
nothing that a page of fifty does not show.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from backend.domain.answers.json_values import BadAnswer, is_exact, parse_answer
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.differences import WHOLE, Difference, DifferenceKind, Pair, differences_between
from backend.domain.evaluation.generative import Verdict, are_right, mark_of
from backend.domain.evaluation.spans import Span, literal_spans, model_spans
from backend.domain.spec.outputs import JsonOutput, LabelOutput, TextOutput

Output = LabelOutput | JsonOutput | TextOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The fault of one answer: the checks that it fails, and the values that it has in place of gold's, by field ("" is
    the label of a label task, None an answer that is none of the labels)."""

    is_wrong: bool
    failed: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    label: Pair | None = None

    @property
    def confused(self) -> Iterator[tuple[str, Pair]]:
        if self.label is not None:
            yield "", self.label
        for one in self.differences:
            yield from ((one.field, pair) for pair in one.pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutAnswer:
    """One held-out input, `row` counted from 0, with gold and the answer as texts. `is_unsure` is None of a task that
    never abstains; an answer that a rule gave has no confidence. `failed` names the checks that it fails, `verdict` is
    a judge's. Of a json answer that fails a check, `differences` are those of what it says."""

    row: int
    input: str
    gold: str
    predicted: str
    is_wrong: bool
    mark_ppm: int
    confidence_ppm: int | None = None
    is_unsure: bool | None = None
    is_by_rule: bool = False
    failed: tuple[str, ...] = ()
    verdict: str | None = None
    differences: tuple[Difference, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutAnswers:
    """The held-out inputs, gold and answers of one compile, by row; what was not measured is empty. `fields` has the
    places that a model copied each row's values from, `rule_rows` are those that a rule answered."""

    output: Output
    inputs: Sequence[str]
    gold: Sequence[str]
    predictions: Sequence[str]
    confidences_ppm: Sequence[int] = ()
    failed: Sequence[Sequence[str]] = ()
    verdicts: Sequence[str] = ()
    fields: Sequence[Sequence[Mapping[str, Any]]] = ()
    threshold_ppm: int | None = None
    rule_rows: frozenset[int] = frozenset()
    labels: frozenset[str] = frozenset()

    @classmethod
    def from_json(cls, output: Output, heldout: Sequence[Mapping[str, str]], measured: Mapping[str, Any]) -> Self:
        """Read the rows of the held-out side and the measurement of the answers to them. Raises InvalidInput where
        they are not as many."""
        if len(heldout) != len(measured["predictions"]):
            raise InvalidInput("Each held-out input has one answer.")
        threshold = measured.get("threshold")
        return cls(
            output=output,
            inputs=[row["input"] for row in heldout],
            gold=[row["output"] for row in heldout],
            predictions=measured["predictions"],
            **{name: measured.get(name) or () for name in ("confidences_ppm", "failed", "verdicts", "fields")},
            threshold_ppm=None if threshold is None else threshold["ppm"],
            rule_rows=frozenset(measured.get("rule_rows") or ()),
            labels=frozenset(one.name for one in output.labels) if isinstance(output, LabelOutput) else frozenset(),
        )

    def __len__(self) -> int:
        return len(self.inputs)

    def judge(self, row: int) -> Judgement:
        """Judge one answer: wrong is what has less than its whole mark; a text that a judge compared, where it lost or
        fails a check."""
        answer, truth = self.predictions[row], self.gold[row]
        if isinstance(self.output, LabelOutput):
            return Judgement(is_wrong=answer != truth, label=(truth, answer if answer in self.labels else None))
        failed = tuple(self.failed[row]) if self.failed else ()
        if isinstance(self.output, TextOutput):
            if self.output.accuracy == "judge":
                return Judgement(is_wrong=bool(failed) or self._verdict(row) == Verdict.LOSS, failed=failed)
            (is_right,) = are_right(self.output, [truth], [answer], [not failed])
            return Judgement(is_wrong=not is_right, failed=failed)
        differences = () if answer == truth else _differences(self.output.accuracy, answer, truth)
        return Judgement(is_wrong=bool(failed or differences), failed=failed, differences=differences)

    def answer(self, row: int) -> HeldoutAnswer:
        """Gather all that is known of one answer."""
        judged, text = self.judge(row), self.inputs[row]
        by_rule = row in self.rule_rows
        confidence = self.confidences_ppm[row] if self.confidences_ppm and not by_rule else None
        is_unsure = None
        if self.threshold_ppm is not None:
            is_unsure = confidence is not None and confidence < self.threshold_ppm
        spans = model_spans(self.fields[row], text) if self.fields and not by_rule else []
        return HeldoutAnswer(
            row=row,
            input=text,
            gold=self.gold[row],
            predicted=self.predictions[row],
            is_wrong=judged.is_wrong,
            mark_ppm=self._mark_ppm(row, judged),
            confidence_ppm=confidence,
            is_unsure=is_unsure,
            is_by_rule=by_rule,
            failed=judged.failed,
            verdict=self._verdict(row),
            differences=judged.differences,
            spans=(*spans, *literal_spans(judged.differences, text)),
        )

    def _verdict(self, row: int) -> str | None:
        return (self.verdicts[row] or Verdict.LOSS) if self.verdicts else None

    def _mark_ppm(self, row: int, judged: Judgement) -> int:
        if not isinstance(self.output, JsonOutput) or not judged.is_wrong:
            return 0 if judged.is_wrong else PPM
        answer = None if judged.failed else _value(self.predictions[row])
        return mark_of(self.output.accuracy, answer, _value(self.gold[row]))


def _differences(accuracy: str, predicted: str, gold: str) -> tuple[Difference, ...]:
    answer, truth = _value(predicted), _value(gold)
    differing = differences_between(answer, truth)
    if not differing and accuracy == "exact" and not is_exact(answer, truth):
        return (Difference(field=WHOLE, kind=DifferenceKind.ORDER),)
    return differing


def _value(text: str) -> Any:
    """The value of an answer; None of one that is none."""
    try:
        return parse_answer(text)
    except BadAnswer:
        return None
