"""The first wall of the registry: content does not pass, whatever the rest of the street does."""

import json
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backend.domain.recipes.registry.structural import MAX_RUN_CHARS, WORDS, structural
from backend.domain.recipes.shapes import SHAPE_TEXT, shape_of

NAMES = st.text(string.ascii_letters + "_-", min_size=1, max_size=10)
VALUES = st.recursive(
    st.text(max_size=8) | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)


def content_places(text: str) -> set[int]:
    """Every character of a JSON text that is a value's: of strings that are no names of members, of numbers and of
    words. Read with a scanner of its own, so that it can disagree."""
    found: set[int] = set()
    at = 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            if not text[end + 1 :].lstrip(" \n\t").startswith(":"):
                found |= set(range(at + 1, end))
            at = end + 1
        else:
            if text[at] not in "{}[]:, \n\t":
                found.add(at)
            at += 1
    return found


@given(DOCUMENTS, st.sampled_from([None, 2]), st.data())
def test_no_character_of_a_value_leaves_a_json_answer_wherever_a_run_begins(document, indent, data):
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    cut = data.draw(st.integers(0, len(text)))
    kept = structural(shape_of(text[:cut].encode()), text[cut:])
    if kept is not None:
        assert text[cut:].startswith(kept.run)
        assert not content_places(text) & set(range(cut, cut + len(kept.run)))
        assert kept.run.isascii()
        assert not any(char.isdigit() for char in kept.run)


@given(st.text(max_size=60), st.text(max_size=60))
def test_of_any_other_text_only_signs_and_words_of_programming_leave(before, run):
    assume(not any(line.lstrip().startswith(("{", "[")) for line in (before + run).split("\n")))
    kept = structural(shape_of(before.encode()), run)
    if kept is not None:
        words = set("".join(char if char.isalnum() or char == "_" else " " for char in kept.run).split())
        assert words <= WORDS


@given(st.text(max_size=80), st.text(max_size=200))
def test_what_has_passed_passes_again_unchanged_whatever_came_in(shape, run):
    for written in (shape, shape_of(shape.encode("utf-8", "replace"))):
        kept = structural(written, run)
        if kept is not None:
            assert structural(kept.shape, kept.run) == kept
            assert len(kept.run) <= MAX_RUN_CHARS


@given(st.text(max_size=60))
def test_every_shape_outside_literals_is_known_and_none_of_an_inside(text):
    """The wall has a grammar of its own; where it knows less than shapes are, structure would be lost."""
    shape = shape_of(text.encode())
    is_inside = " in " in shape.split("|")[0]
    assert SHAPE_TEXT.fullmatch(shape)
    assert (structural(shape, ":") is None) is is_inside


@pytest.mark.parametrize(
    "shape",
    [
        'json d1 key "patient" | : STR ,',  # a keyed shape has a name of the tenant's
        "json d1 in value #0 | ID WS ID",  # the inside of a literal
        "json d1 in key #0 | ID",
        'text d0 i0 in " | ID',
        "json d1 key #1 | : STR , SECRET",
        "json d1 key #1 | : STR ,\n",
        "json d1 key #١ | : STR ,",
        "json d1 key #1 | : STR , : : :",
        "",
        "x" * 10_000,
    ],
)
def test_a_shape_with_room_for_content_does_not_leave(shape):
    assert structural(shape, ' "city": "') is None


@pytest.mark.parametrize(
    ("run", "kept"),
    [
        (' "city": "Bern", "zip": 3000', ' "city": "'),
        (' "user_8841": 1', ' "'),
        (' "o\u2019neill": 1', ' "'),
        (' "sk-live-4f2a": "', ' "'),
        (' "a\\u0062": 1', ' "'),
        (' "John Smith": 1', ' "'),
        (' "' + "a" * 33 + '": 1', ' "'),
        (' "a": {"b": {"c": {"d": {"e": 1', ' "a": {"b": {"c": {"d": {"'),
        (" 12", " "),
        ("}", "}"),
        ("Bern", None),
    ],
)
def test_names_that_could_be_content_are_cut_off(run, kept):
    found = structural("json d1 key #1 | STR : STR ,", run)
    assert (found and found.run) == kept


def test_a_string_in_an_array_is_no_name_though_a_colon_follows():
    """Not JSON, but a model may have written it."""
    kept = structural("json d1 value #0 | { STR :", ' ["name": 1')
    assert kept is not None
    assert kept.run == ' ["'
