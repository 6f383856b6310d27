"""The arithmetic of the bench of structured output, without a server."""

import argparse
import json
from pathlib import Path

import pytest

from backend.domain.dialects.dialect import ResponseFormat
from backend.domain.spec.parsing import parse_spec
from tests.bench.structured_output import N_SHOWN, Asked, Task, costs_usd, ratio, report, score, task_of
from tests.compile_factories import small_spec
from tests.workers.answer_helpers import json_spec

TEXTS = ("My invoice was charged twice on my card.", "The lamp has a scratch.", "The app crashes.")
GOOD = {"subject": "My invoice", "urgent": True}
SPEC = parse_spec(small_spec(**json_spec()))
TASK = Task(name="t", spec=SPEC, inputs=TEXTS, gold=(GOOD, GOOD, GOOD))


def asked(texts: list[str], way: ResponseFormat, *, output_tokens: int = 10) -> list[Asked]:
    return [
        Asked(
            server="s",
            task="t",
            way=way.value,
            input=i,
            text=text,
            finish="stop",
            input_tokens=100,
            output_tokens=output_tokens,
            seconds=1.0,
        )
        for i, text in enumerate(texts)
    ]


def test_an_answer_counts_where_labelling_would_let_it_vote() -> None:
    """Not one that no JSON is, nor one that does not fit, nor one that fails the spec's own check (copied)."""
    answers = [json.dumps(GOOD), '{"subject": 3}', json.dumps(GOOD)]
    one = score(TASK, asked(answers, ResponseFormat.FREE))
    assert one.valid == (True, False, False)
    assert one.f1 == (1.0, 0.0, 0.0)
    assert not any(score(TASK, asked(["no idea"] * 3, ResponseFormat.FREE)).valid)


def test_a_dollar_is_that_of_the_declared_row() -> None:
    """gpt-4o-mini: 0.15 dollars a million in, 0.60 out."""
    one = score(TASK, asked(["x"] * 3, ResponseFormat.FREE, output_tokens=1000))
    assert costs_usd(one) == pytest.approx([100 * 0.15e-6 + 1000 * 0.6e-6] * 3)


def test_the_ratio_has_an_interval_and_words_where_there_is_nothing_to_divide_by() -> None:
    assert ratio([True] * 8, [1.0] * 8, [True] * 8, [2.0] * 8) == "2.00 (2.00 to 2.00)"
    assert ratio([True] * 8, [1.0] * 8, [False] * 8, [2.0] * 8) == "free text has none"
    some = ratio([True] * 8, [1.0] * 8, [True, False] * 4, [1.0] * 8)
    assert some.startswith("2.00 (1.")


def test_the_table_sets_each_way_beside_free_text() -> None:
    answers = asked([json.dumps(GOOD)] * 3, ResponseFormat.SCHEMA) + asked(["x"] * 3, ResponseFormat.OBJECT)
    lines = report([TASK], answers + asked([json.dumps(GOOD), "x", "x"], ResponseFormat.FREE)).splitlines()
    assert [line for line in lines if line.startswith("| s | t | `json_schema` | 1 of 3 ")]
    assert [line for line in lines if line.startswith("| s | t | `json_object` | -33.3 ")]


def test_what_is_shown_in_the_task_is_not_asked_about() -> None:
    chosen = argparse.Namespace(rows=20, data=Path())
    plain, shown = task_of("orders", chosen), task_of("orders-shown", chosen)
    assert plain is not None
    assert shown is not None
    assert shown.inputs == plain.inputs
    assert len(set(shown.inputs)) == 20
    assert shown.spec.task.count("Example: ") == N_SHOWN
    assert not any(text in shown.spec.task for text in shown.inputs)
    assert len({answer["action"] for answer in shown.gold}) == 5
