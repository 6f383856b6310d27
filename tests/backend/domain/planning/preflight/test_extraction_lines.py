"""Whether gold shows that a span student can answer with texts, before anything is paid."""

from typing import Any

from backend.domain.planning.preflight.extraction_lines import FEWEST, MANY_TEXTS, extraction_lines, gold_plan
from backend.domain.planning.preflight.lines import Check, LineStatus, PreflightLine
from backend.domain.spec.inputs import Example
from backend.domain.spec.parsing import parse_spec
from tests.backend.domain.spec.test_outputs import text_document
from tests.gpu_runners.distill.spans.test_texts import text_pairs

FORMED = [Example(input=source, output=text) for source, text in text_pairs(MANY_TEXTS)]
FREE = [
    Example(input=f"mail {n}", output=f"{'very ' * n}good, number {n} of {chr(97 + n % 26)}") for n in range(MANY_TEXTS)
]


def lines_of(gold: list[Example], **train: Any) -> list[PreflightLine]:
    spec = parse_spec(text_document(output={"type": "text", "accuracy": "exact"}, train=train))
    return extraction_lines(spec, gold_plan(spec, gold))


def test_texts_of_fixed_forms_are_answered_by_a_span_student_that_is_asked_for() -> None:
    (line,) = lines_of(FORMED, kind="spans")
    assert (line.check, line.status) == (Check.STUDENT, LineStatus.PASSED)
    assert "40 of the 40 gold texts are of 2 fixed forms" in line.sentence


def test_where_the_kind_is_left_open_the_line_names_the_choice() -> None:
    (line,) = lines_of(FORMED)
    assert line.status is LineStatus.PASSED
    assert "train.kind: spans" in line.sentence
    assert lines_of(FORMED[: MANY_TEXTS - 1]) == lines_of(FREE) == []
    assert lines_of(FORMED, kind="causal") == []


def test_texts_without_a_form_refuse_a_span_student_where_gold_is_enough_to_say_so() -> None:
    (line,) = lines_of(FREE, kind="spans")
    assert (line.status, line.code) == (LineStatus.FAILED, "not_extractable")
    assert "40 of the 40 gold texts have no form" in line.sentence
    assert "train.kind" in line.what_to_do


def test_of_few_gold_texts_each_may_be_one_of_its_form_and_the_line_warns() -> None:
    (line,) = lines_of(FREE[:FEWEST], kind="spans")
    assert (line.status, line.code) == (LineStatus.WARNING, "not_extractable")
    assert lines_of(FREE[: FEWEST - 1], kind="spans") == []
