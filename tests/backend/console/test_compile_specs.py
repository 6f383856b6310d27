"""The editor's text, read: lines of problems, and hostile documents that cost little."""

import time

import pytest

from backend.console.compile_specs import read_spec, with_budget
from backend.domain.errors import InvalidSpec
from backend.domain.spec import parse_spec

SPEC = """name: router
# a comment
output:
  type: label
  labels:
    - name: refund
    - {name: other}
budget: {usd: 1}
"""


def test_a_pointer_has_the_line_where_its_part_stands():
    text = read_spec(SPEC)
    lines = {"": 1, "/output": 3, "/output/labels/0/name": 6, "/output/labels/1": 7, "/budget/usd": 8, "/nowhere": 1}
    assert {pointer: text.line_of(pointer) for pointer in lines} == lines


def test_json_is_read_with_lines_too_tabs_or_not():
    assert read_spec('{\n "name": "a",\n "gate": {\n  "k_min": 2}}').line_of("/gate/k_min") == 4
    assert read_spec('{\n\t"name": "a"}').value == {"name": "a"}


def test_dates_stay_text_and_a_merge_key_is_a_key():
    assert read_spec("revision: 2026-01-01").value == {"revision": "2026-01-01"}
    assert read_spec("a: &a {b: 1}\nc:\n  <<: *a").value["c"] == {"<<": {"b": 1}}


def nested(n: int, *, merge: bool = False) -> str:
    """Nine times more at each level."""
    lines = ["k0: &k0 {a: 1}" if merge else "k0: &k0 [x, x, x, x, x, x, x, x, x]"]
    for i in range(1, n):
        parts = ", ".join([f"*k{i - 1}"] * 9)
        lines.append(f"k{i}: &k{i} " + (f"{{<<: [{parts}]}}" if merge else f"[{parts}]"))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (nested(9), "200,000 values"),
        (nested(9, merge=True), "200,000 values"),
        ("[" * 400_000, "64 deep"),
        ('{"a":' * 100_000, "64 deep"),
        ("a: &a [*a]", "32 deep"),
        ("a: !!python/object/apply:os.system [id]", "tags"),
        ("a: " + "9" * 900_000, "not YAML or JSON"),
        ("x" * 1_000_001, "bytes"),
        ("é" * 600_000, "bytes"),
        ("a: 1\na: 2", "stands twice"),
        ("a: \x00", "not YAML or JSON"),
        ('a: "\ud800"', "not YAML or JSON"),
        ("a: [1", "Line 2"),
        ("a: *nobody", "Line 1"),
        ("? [a, b]\n: c", "not YAML or JSON"),
        ("a: b\n---\nc: d", "Line 2"),
        ("# nothing", "comments only"),
        ("   ", "empty"),
        ("just words", "this is text"),
        ("- a\n" * 200_000, "this is a list"),
    ],
    ids=lambda value: value[:24],
)
def test_what_is_no_spec_is_refused_with_a_reason_and_soon(text, said):
    started = time.process_time()
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(read_spec(text).value)
    assert said in refused.value.message
    assert time.process_time() - started < 5


@pytest.mark.parametrize(("typed", "usd"), [("2.50", 2.5), (" $3 ", 3.0), ("", 1)])
def test_the_budget_field_goes_before_the_specs(typed, usd):
    assert with_budget({"budget": {"usd": 1}}, typed)["budget"]["usd"] == usd


@pytest.mark.parametrize("typed", ["free", "-1", "0", "nan", "inf", "1e9", "1" * 400])
def test_a_budget_that_is_no_amount_is_refused(typed):
    with pytest.raises(InvalidSpec, match="US dollars"):
        with_budget({"budget": {"usd": 1}}, typed)
