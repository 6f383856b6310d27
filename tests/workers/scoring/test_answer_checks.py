"""Which checks an answer fails: form first, pointers with `*`, and programs for many rows in one process."""

import pytest

from backend.domain.spec.parsing import JsonOutput, TextOutput
from workers.sandbox import process
from workers.scoring.answer_checks import Failed, failed_checks, judge_answers

SCHEMA = {
    "type": "object",
    "properties": {
        "order": {"type": ["string", "null"]},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
        },
    },
    "required": ["order", "items"],
}
INPUT = "Order  A-12:\ntwo Red lamps and 3 mugs"
GOOD = '{"order": "a-12", "items": [{"name": "red  lamps", "n": 2}, {"name": "mugs", "n": 3}]}'


def json_output(*checks: dict) -> JsonOutput:
    return JsonOutput.model_validate({"type": "json", "schema": SCHEMA, "checks": list(checks)})


def text_output(*checks: dict, max_chars: int = 40) -> TextOutput:
    return TextOutput.model_validate({"type": "text", "max_chars": max_chars, "checks": list(checks)})


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (GOOD, []),
        ("not json", ["schema"]),
        (GOOD[:-1], ["schema"]),
        (f"Here you are: {GOOD}", ["schema"]),
        ('{"order": null}', ["schema"]),
        ('{"order": 1, "items": []}', ["schema"]),
        ('{"order": null, "items": [], "more": 1}', ["schema"]),
        ('{"order": null, "order": null, "items": []}', ["schema"]),
        ('{"order": null, "items": [{"n": NaN}]}', ["schema"]),
        ("[" * 100_000, ["schema"]),
        ("", ["schema"]),
    ],
)
def test_an_answer_without_the_schemas_form_fails_that_alone(answer, failed):
    never = {"kind": "python", "source": "def check(input, output):\n    return False"}
    assert failed_checks(json_output(), [(INPUT, answer)]) == [failed]
    assert failed_checks(json_output(never), [(INPUT, answer)]) == [failed or ["python"]]


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ({"kind": "copied", "field": "/order"}, True),
        ({"kind": "copied", "field": "/items/*/name"}, True),
        ({"kind": "copied", "field": "/items/1/name"}, True),
        ({"kind": "copied", "field": "/items/7/name"}, True),  # nothing there, nothing to say
        ({"kind": "copied", "field": "/nowhere"}, True),
        ({"kind": "copied"}, False),
        ({"kind": "regex", "field": "/order", "pattern": "^a-[0-9]+$"}, True),
        ({"kind": "regex", "field": "/items/*/name", "pattern": "^m"}, False),
        ({"kind": "regex", "field": "/items/*/n", "pattern": "^[0-9]$"}, True),  # a number is judged as it is written
        ({"kind": "length", "field": "/items/*/name", "min_chars": 4, "max_chars": 10}, True),
        ({"kind": "length", "field": "/items/*/name", "min_chars": 5}, False),
        ({"kind": "contains", "field": "/order", "any_of": ["x", "A-1"]}, True),
        ({"kind": "contains", "field": "/order", "any_of": ["x"]}, False),
        ({"kind": "excludes", "any_of": ["MUGS"]}, False),
        ({"kind": "excludes", "field": "/order", "any_of": ["mugs"]}, True),
        ({"kind": "python", "field": "/items/*/n", "source": "def check(input, output):\n    return output > 1"}, True),
        (
            {"kind": "python", "field": "/items/*/n", "source": "def check(input, output):\n    return output > 2"},
            False,
        ),
        ({"kind": "python", "field": "/x/*", "source": "def check(input, output):\n    return False"}, True),
        ({"kind": "python", "source": "def check(input, output):\n    return len(output['items']) == 2"}, True),
        ({"kind": "python", "source": "def check(input, output):\n    return '\\n' in input"}, True),
    ],
)
def test_a_check_judges_the_parts_that_its_pointer_finds(check, holds):
    assert failed_checks(json_output(check | {"name": "it"}), [(INPUT, GOOD)]) == [[] if holds else ["it"]]


def test_null_is_not_judged_as_a_text():
    checks = [{"kind": "copied", "field": "/order"}, {"kind": "length", "field": "/order", "min_chars": 3}]
    assert failed_checks(json_output(*checks), [(INPUT, '{"order": null, "items": []}')]) == [[]]


def test_a_text_must_be_there_and_not_too_long():
    output = text_output({"kind": "contains", "any_of": ["lamp"]})
    rows = [(INPUT, text) for text in ("Wants lamps.", "  ", "x" * 41, "Wants mugs.")]
    assert failed_checks(output, rows) == [[], ["empty"], ["max_chars"], ["contains"]]


def test_checks_are_named_in_the_order_of_the_spec_with_what_a_program_said():
    raising = {"kind": "python", "name": "raises", "source": "def check(input, output):\n    return 1 / 0 > 1"}
    output = json_output({"kind": "excludes", "any_of": ["mugs"]}, raising, {"kind": "copied", "name": "whole"})
    (row,) = judge_answers(output, [(INPUT, GOOD)])
    assert [failed.name for failed in row] == ["excludes", "raises", "whole"]
    assert row[1] == Failed(name="raises", fault="line 2: ZeroDivisionError: division by zero (return 1 / 0 > 1)")


def test_the_programs_of_all_rows_run_in_one_process(monkeypatch):
    started = []
    popen = process.subprocess.Popen

    def counted(*args, **kwargs):
        started.append(args)
        return popen(*args, **kwargs)

    monkeypatch.setattr(process.subprocess, "Popen", counted)
    check = {"kind": "python", "source": "def check(input, output):\n    return len(input) % 2 == 0"}
    rows = [("x" * n, "fine") for n in range(1, 300)]
    found = failed_checks(text_output(check, check | {"name": "again"}), rows)
    assert [not failed for failed in found] == [n % 2 == 0 for n in range(1, 300)]
    assert len(started) == 1


def test_no_rows_and_no_programs_start_nothing(monkeypatch):
    monkeypatch.setattr(process.subprocess, "Popen", None)
    assert failed_checks(text_output({"kind": "python", "source": "def check(input, output): ..."}), []) == []
    assert failed_checks(text_output(), [(INPUT, "fine")]) == [[]]
