import json
import random
from typing import Any

import pytest

from backend.domain.answers.json_values import answer_text, parse_answer
from backend.domain.rules.closure import compile_rules
from backend.domain.rules.extraction import MAX_WORDS, compile_fields, compile_places, compile_trace
from backend.domain.rules.rule_list import Condition, Copy, Evidence, FieldIs, FieldRule, RuleList
from tests.backend.domain.rules.random_lists import field_list, hanging_list, random_text

FIELDS = (("action",), ("order", "nr"), ("order", "item"))
SCHEMA = {
    "type": "object",
    "required": ["action", "order"],
    "properties": {
        "action": {"type": "string"},
        "order": {
            "type": "object",
            "required": ["nr", "item"],
            "properties": {"nr": {"type": ["string", "null", "number"]}, "item": {"type": "string"}},
        },
    },
}


def given(
    field: int,
    *when: Condition,
    value: str | int | bool | None = None,
    copy: Copy | None = None,
    is_absent: bool = False,
) -> FieldRule:
    return FieldRule(
        field=field, when=when, unless=(), value=value, copy=copy, is_absent=is_absent, evidence=Evidence()
    )


def answers(
    *rules: FieldRule, text: str, fields: tuple[tuple[str, ...], ...] = (("x",),), known: str = ""
) -> str | None:
    vocabularies = (("red", "red shoes", "hat"),)
    made = RuleList(task="json", rules=rules, fields=fields, vocabularies=vocabularies, known=tuple(known.split()))
    return compile_rules(made)(text)


ORDER = (
    given(0, "cancel", value="cancel"),
    given(1, copy=Copy(pattern="code")),
    given(1, value=None),
    given(2, copy=Copy(vocabulary=0)),
    given(2, FieldIs(field=0, value="cancel"), is_absent=True),
)


def test_values_that_were_copied_say_from_where_and_null_is_no_field() -> None:
    made = RuleList(task="json", rules=ORDER, fields=FIELDS, vocabularies=(("red", "red shoes", "hat"),))
    places, text = compile_places(made), "😀 Cancel A-2048, the Red Shoes."
    placed = {place.path: None if place.start is None else text[place.start : place.end] for place in places(text)}
    assert placed == {"/action": None, "/order/nr": "A-2048", "/order/item": "Red Shoes"}
    assert [place.path for place in places("please cancel the hat")] == ["/action", "/order/item"]
    assert places("the hat of 4021") == []


def test_a_place_holds_what_the_answer_says() -> None:
    n_placed = 0
    for seed in range(60):
        rng = random.Random(seed)
        rules = field_list(rng)
        answer, places = compile_fields(rules), compile_places(rules)
        for text in (random_text(rng) for _ in range(30)):
            said = answer(text)
            placed = [place for place in places(text) if place.start is not None]
            assert said is not None or not placed
            for place in placed:
                value = leaf(json.loads(said or "{}"), place.path)
                assert str(value) in (text[place.start : place.end], text[place.start : place.end].lstrip("0") or "0")
                n_placed += 1
    assert n_placed > 50


def leaf(value: Any, path: str) -> Any:
    for name in path.split("/")[1:]:
        value = value[name]
    return value


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Cancel A-2048, the Red Shoes.", {"action": "cancel", "order": {"nr": "A-2048", "item": "Red Shoes"}}),
        ("please cancel the hat", {"action": "cancel", "order": {"nr": None, "item": "hat"}}),
        ("cancel 4021 or 4022", {"action": "cancel", "order": {"nr": None}}),
        ("the hat of 4021", None),
        ("", None),
    ],
)
def test_an_answer_is_spelt_when_every_field_is_given(text: str, answer: object) -> None:
    said = answers(*ORDER, text=text, fields=FIELDS)
    assert said == (None if answer is None else answer_text(answer, SCHEMA))


@pytest.mark.parametrize(
    ("copy", "text", "value"),
    [
        (Copy(pattern="integer", as_number=True), "I want 007 cups", 7),
        (Copy(pattern="number", as_number=True), "it is 12.50 now", 12.5),
        (Copy(pattern="number", as_number=True), "it is 12.00 now", 12),
        (Copy(pattern="number", as_number=True), "it is 123456789012345.5 now", None),
        (Copy(pattern="integer", after="order nr"), "3 of order nr. 41", "41"),
        (Copy(pattern="integer"), "3 of order 41", None),
        (Copy(pattern="quoted"), 'play "Don\'t stop" now', "Don't stop"),
        (Copy(between=("to", "playlist")), "add it to My Rock 'n' Roll playlist", "My Rock 'n' Roll"),
        (Copy(between=("^", "$")), "  all of it! ", "all of it"),
        (Copy(between=("to", "$")), "go to x to y", None),
        (Copy(between=("to", "$")), "add to", None),
        (Copy(between=("^", "$")), "a " * 13, None),
        (Copy(vocabulary=0), "RED shoes?", "RED shoes"),
        (Copy(vocabulary=0), "red and hat", None),
        (Copy(vocabulary=0), "a red", "red"),
        (Copy(between=("^", "$")), 'tab\x7f\t"x', 'tab\x7f\t"x'),
        (Copy(between=("^", "$")), "\ud800", None),
        (Copy(between=("^", "$")), "a\0b", None),
    ],
)
def test_a_copy_is_the_only_place_that_fits(copy: Copy, text: str, value: object) -> None:
    said = answers(given(0, copy=copy), text=text)
    assert said == (None if value is None else answer_text({"x": value}, {"type": "object"}))


def test_words_that_one_field_took_are_not_copied_by_another() -> None:
    two = (given(0, copy=Copy(pattern="integer", after="nr")), given(1, copy=Copy(pattern="integer")))
    assert answers(*two, text="2 of nr 41", fields=(("nr",), ("n",))) == '{"nr": "41", "n": "2"}'


def test_a_list_that_must_know_every_word_is_silent_about_others() -> None:
    rules = (given(0, copy=Copy(vocabulary=0)), given(1, "<known>", is_absent=True))
    fields = (("item",), ("city",))
    assert answers(*rules, text="I want the hat", fields=fields, known="i want the") == '{"item": "hat"}'
    assert answers(*rules, text="I want the hat in Rome", fields=fields, known="i want the") is None


def test_a_truth_value_is_no_number() -> None:
    rules = (given(0, value=True), given(1, FieldIs(field=0, value=1), value="one"), given(1, value="no"))
    assert answers(*rules, text="", fields=(("a",), ("b",))) == '{"a": true, "b": "no"}'


def test_a_list_without_rules_for_every_field_never_answers() -> None:
    assert answers(given(0, value="x"), text="x", fields=(("a",), ("b",))) is None


def test_nothing_is_said_of_a_text_that_is_too_long() -> None:
    assert answers(given(0, value="x"), text="a " * MAX_WORDS) == '{"x": "x"}'
    assert answers(given(0, value="x"), text="a " * (MAX_WORDS + 1)) is None


def test_every_answer_can_be_read_back() -> None:
    said = answers(given(0, value='a"\\\n\u2028'), text="", fields=(('na"me',),))
    assert said is not None
    assert parse_answer(said) == json.loads(said) == {'na"me': 'a"\\\n\u2028'}


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {at: leaf for name, inner in value.items() for at, leaf in leaves(inner, (*path, name)).items()}


@pytest.mark.parametrize("make", [field_list, hanging_list])
def test_the_answer_is_what_each_fields_first_rule_gives(make) -> None:
    rng = random.Random(3)
    n_answered = 0
    for _ in range(150):
        rules = make(rng)
        answer, trace = compile_fields(rules), compile_trace(rules)
        for text in [random_text(rng) for _ in range(30)]:
            found = trace(text)
            asks_known = any("<known>" in rules.rules[number].when for number, _ in found)
            said = answer(text)
            assert said is not None or asks_known or len(found) < len(rules.fields)
            if said is None:
                continue
            given = {rules.fields[rules.rules[number].field]: value for number, value in found}
            assert leaves(json.loads(said)) == {p: json.loads(value) for p, value in given.items() if value is not None}
            n_answered += 1
    assert n_answered > 50
