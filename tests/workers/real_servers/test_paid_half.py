"""The paid half of a compile, from preflight to labels, at real servers with a real language model behind them: with
the dialect that a spec names, and with nothing known of the endpoint, whose refusals then teach.

It would catch a client that reads no real server's answers, a row that sends what its server refuses, structured output
that does not hold, and tokens that are metered otherwise than they were billed. Whether the answers are any good is not
asked: Gemma 3 270M is no instruct model.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from backend.compiles.models import Compile, TeacherCall
from backend.domain.answers.json_schemas import validator
from backend.domain.dialects.dialect import Option, ResponseFormat
from backend.domain.dialects.table import BY_NAME
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from tests.compile_factories import LABELS, fresh, make_compile
from tests.factories import make_tenant
from tests.workers.answer_helpers import SCHEMA, json_spec
from tests.workers.pipeline_helpers import calls, check_money, start, step, told_apart
from tests.workers.real_servers.wire import Exchange, Wire
from tests.workers.steps.test_strict_vendors import PRICE, walk_paid_half
from workers.preflight import compile_start
from workers.preflight.compile_start import begin_compile
from workers.step import teacher_calls

pytestmark = [pytest.mark.usefixtures("committed_db"), pytest.mark.nightly, pytest.mark.timeout(1800)]
PATIENCE_S = 300.0  # a slow machine's, for one call
KNOWN = pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_start, "DEADLINE_S", PATIENCE_S)
    monkeypatch.setattr(teacher_calls, "SLOW_TOKENS_PER_S", 256 / PATIENCE_S)  # 256: a json answer's limit


def compile_at(wire: Wire, *, is_known: bool, base: dict[str, Any]) -> Compile:
    teacher = {"provider": "openai_compatible", "base_url": wire.base_url, "model": wire.server.model}
    teacher |= {"price": PRICE, "dialect": wire.server.name if is_known else None, "concurrency": 2}
    return make_compile(make_tenant(), **(base | {"teacher": teacher, "budget": {"usd": 50}}))


def label_base() -> dict[str, Any]:
    """Two slices to write for, and captures, so that there is something to label whatever the model writes."""
    return {
        "examples": {"inline": told_apart(24), "holdout": 0.5},
        "slices": [
            {"name": "back", "share": 0.5, "hint": "The customer wants the money back.", "label": LABELS[0]},
            {"name": "else", "share": 0.5, "hint": "The customer wants something else.", "label": LABELS[1]},
        ],
        "captures": {
            "inline": ["Give me my money back.", "Where is your shop?", "The lamp is broken, I want a refund."]
        },
        "sampling": {"n_candidates": 2, "candidate_max_tokens": 32, "label_samples": 2, "on_gap": ["drop_k"]},
    }


def walk(row: Compile) -> str:
    """Walk the paid half. Gives the code of what a customer is shown where the answers of so small a model are of no
    use, "" where it came to its end."""
    try:
        walk_paid_half(row)
    except CustomerError as refused:
        return refused.code
    return ""


def about_an_input(wire: Wire) -> list[Exchange]:
    """The answered questions for a label or an answer."""
    return [one for one in wire.answered if "\nMessage:\n" in one.asked["messages"][-1]["content"]]


def check_calls(row: Compile, wire: Wire, *, is_known: bool) -> None:
    """All that was answered is journaled and paid, token for token; the server's own row is refused nothing."""
    made: Sequence[TeacherCall] = calls(row)
    assert {call.state for call in made} == {"applied"}
    assert {call.step for call in made} == {StepName.SYNTHESIS, StepName.LABELING}
    usages = [one.answered["usage"] for one in wire.answered]
    assert sum(call.input_tokens for call in made) == sum(usage["prompt_tokens"] for usage in usages)
    if is_known:
        assert wire.refused == []
        assert sum(call.output_tokens for call in made) == sum(usage["completion_tokens"] for usage in usages)
    check_money(row)


@KNOWN
def test_preflight_is_green(wire: Wire, is_known: bool) -> None:
    row = compile_at(wire, is_known=is_known, base=label_base())
    begin_compile(start(row))
    fresh(row)
    lines = {line["check"]: line for line in row.preflight["lines"]}
    assert row.preflight["passed"] is True, row.preflight
    assert lines["teacher"]["status"] == "passed"
    assert (lines["logprobs"]["status"] == "passed") == (Option.LOGPROBS in BY_NAME[wire.server.name].takes)
    assert len(wire.answered) == 1
    if is_known:
        assert wire.refused == []
    check_money(row)


@KNOWN
def test_a_label_task_is_written_and_labelled(wire: Wire, is_known: bool) -> None:
    row = compile_at(wire, is_known=is_known, base=label_base())
    code = walk(row)
    assert code in ("", "no_valid_answers"), code
    check_calls(row, wire, is_known=is_known)
    assert about_an_input(wire)
    if not code:  # an input that no answer gave a label is left unlabelled, and the step goes on
        assert step(row, StepName.LABELING).status == "succeeded"


@KNOWN
def test_a_json_task_is_answered_as_structured_output_where_the_row_has_it(wire: Wire, is_known: bool) -> None:
    base = json_spec(captures=label_base()["captures"]) | {"sampling": label_base()["sampling"]}
    row = compile_at(wire, is_known=is_known, base=base)
    code = walk(row)
    assert code in ("", "no_valid_answers"), code
    check_calls(row, wire, is_known=is_known)
    dialect = BY_NAME[wire.server.name]
    is_held = Option.RESPONSE_FORMAT in dialect.takes and dialect.response_format is ResponseFormat.SCHEMA
    answers = about_an_input(wire)
    assert answers
    for one in answers:
        if is_known:
            assert ("response_format" in one.asked) == is_held
        for choice in one.answered["choices"] if is_held else ():
            if choice["finish_reason"] == "stop":
                assert not validator(SCHEMA)(json.loads(choice["message"]["content"])), choice
