"""The editor's text, read: lines of problems, and hostile documents that cost little."""

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backend.console.compiles.spec_text import read_spec, with_budget
from backend.domain.errors import InvalidSpec
from backend.domain.spec.parsing import parse_spec
from tests.backend.domain.answers.json_worlds import values
from tests.cpu_time import cpu_s

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


class FilesLoader(yaml.SafeLoader):
    """As the command line reads files."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if "timestamp" not in tag and "merge" not in tag]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


WORDS = "~ null yes No on 0 -0 12 +12 1_000 012 09 0x1F -0x1f 0b11 1:30 1:30:59 1.5 1. .5 -1.5e+3 1.5e3 .inf 1:30.5"


@pytest.mark.parametrize("word", [*WORDS.split(), "", "2026-01-01", "a: b", "'12'", '"~"', "|\n  12\n"])
def test_a_word_is_what_it_is_in_a_file(word: str) -> None:
    text = f"- {word}\n- b: {word}\n" if "\n" not in word and ": " not in word else f"- {word}"
    assert read_spec(text).value == yaml.load(text, Loader=FilesLoader)


@given(st.dictionaries(st.text(max_size=4), values, min_size=1, max_size=4), st.sampled_from([None, True, False]))
def test_what_was_written_is_read_back(value: dict[str, Any], flow: bool | None) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow)
    assert read_spec(text).value == value
    assert read_spec(json.dumps(value)).value == value


# what YAML can hold without escapes of its own
printable = values.filter(lambda value: json.dumps(value, ensure_ascii=False).isprintable())


@given(st.dictionaries(st.sampled_from(["a", "b/~", 'q"{,:', "é"]), printable, min_size=1), st.sampled_from([None, 1]))
def test_json_has_the_lines_of_the_same_text_read_as_yaml(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    as_yaml = read_spec(f"# not JSON\n{text}")
    for pointer in pointers(value):
        assert read_spec(text).line_of(pointer) == as_yaml.line_of(pointer) - 1


def pointers(value: Any, at: str = "") -> list[str]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    escaped = [(str(step).replace("~", "~0").replace("/", "~1"), item) for step, item in inside]
    return [at, *(below for step, item in escaped for below in pointers(item, f"{at}/{step}"))]


def test_what_an_alias_repeats_stands_at_the_alias() -> None:
    text = read_spec("a: &a {b: [1, 2]}\nc:\n- *a\n- *a\nd: *a")
    assert text.value["c"][1] == text.value["d"] == {"b": [1, 2]}
    assert [text.line_of(pointer) for pointer in ("/c/1", "/d", "/c/1/b")] == [4, 5, 1]


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
        (nested(9), "150,000 keys and values"),
        (nested(9, merge=True), "150,000 keys and values"),
        ("[" * 400_000, "64 deep"),
        ('{"a":' * 100_000, "64 deep"),
        ("a: &a [*a]", "inside the value that it refers to"),
        ("a: !!python/object/apply:os.system [id]", "tags"),
        ("a: " + "9" * 900_000, "100 characters"),
        ("a: 1" + ":1" * 490_000, "100 characters"),
        ("a: 1" + ":1" * 490_000 + ".5", "100 characters"),
        ("a: 0x" + "f" * 900_000, "100 characters"),
        ("".join(f"%TAG !a{i}! b\n" for i in range(55_000)) + "--- a\n", "begin with %"),
        ("a\n...\n" + "".join(f"%TAG !a{i}! b\n" for i in range(55_000)) + "--- a\n", "begin with %"),
        ("\u2028".join(f"%TAG !a{i}! b" for i in range(50_000)) + "\n--- a\n", "begin with %"),
        ("a: &a b\nc: [" + "*a," * 190_000 + "*a]", "150,000 keys and values"),
        ("a: &a [" + "b" * 4_000 + "]\nc: [" + "*a," * 70_000 + "*a]", "1,000,000 characters"),
        ("a: &a " + "b" * 4_000 + "\nc:\n" + "- {input: *a, output: b}\n" * 30_000, "1,000,000 characters"),
        ("a: &a [" + "b" * 400_000 + "]\n" + "*a : b\n", "a list or an object"),
        ("a: &a [" + "1.5e-7," * 120_000 + "1]\nb: *a", "150,000 keys and values"),
        ("".join(f"k{i}: ~\n" for i in range(90_000)), "150,000 keys and values"),
        ("x" * 1_000_001, "bytes"),
        ("é" * 600_000, "bytes"),
        ("a: 1\na: 2", "appears twice"),
        ("a: \x00", "not YAML or JSON"),
        ('a: "\ud800"', "not YAML or JSON"),
        ("a: [1", "Line 2"),
        ("a: *nobody", "Line 1"),
        ("? [a, b]\n: c", "not YAML or JSON"),
        ("a: b\n---\nc: d", "Line 2"),
        ("# nothing", "comments only"),
        ("   ", "empty"),
        ("just words", "this is text"),
        ("- a\n" * 200_000, "150,000 keys and values"),
        ("- a\n" * 149_000, "this is a list"),
        ('{"a": 1, "b": [{"c": 1, "c": 2}]}', "appears twice"),
    ],
    ids=lambda value: value[:24],
)
def test_what_is_no_spec_is_refused_with_a_reason_and_soon(text, said):

    def read() -> None:
        with pytest.raises(InvalidSpec, match=re.escape(said)):
            parse_spec(read_spec(text).value)

    assert cpu_s(read) < 2  # some 0.6 s for the worst


@pytest.mark.parametrize(("typed", "usd"), [("2.50", 2.5), (" $3 ", 3.0), ("", 1)])
def test_the_budget_field_goes_before_the_specs(typed, usd):
    assert with_budget({"budget": {"usd": 1}}, typed)["budget"]["usd"] == usd


@pytest.mark.parametrize("typed", ["free", "-1", "0", "nan", "inf", "1e9", "1" * 400])
def test_a_budget_that_is_no_amount_is_refused(typed):
    with pytest.raises(InvalidSpec, match="US dollars"):
        with_budget({"budget": {"usd": 1}}, typed)
