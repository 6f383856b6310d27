"""Shapes: classes in place of literals, the same however a text was cut."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes import shapes as shapes_module
from backend.domain.recipes.shapes import SHAPE_TEXT, ShapeTable, is_keyed, shape_of
from tests.backend.domain.recipes.letters import TEXTS

BYTES = [bytes([byte]) for byte in range(256)]

# what shapes are sensitive to, oftener than chance would have it
texts = st.lists(
    st.sampled_from([*"{}[]():,.\\\"'` \n\t0a_é-#", '{"a": ', '", "b": 1', "return", "null", "for x in y:\n    "])
    | st.characters(codec="utf-8"),
    max_size=20,
).map("".join)


def table_after(text: bytes, cuts: list[int]) -> tuple[ShapeTable, int]:
    """The text as tokens that end at `cuts`."""
    ends = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    pieces = [text[begin:end] for begin, end in itertools.pairwise(ends)]
    table = ShapeTable([b"", *pieces])
    state = table.start
    for token in range(len(pieces) + 1):
        state = table.advance(state, token)
    return table, state


@given(texts, st.lists(st.integers(0, 200), max_size=6))
def test_a_text_has_one_shape_however_it_was_cut_into_tokens(text: str, cuts: list[int]) -> None:
    table, state = table_after(text.encode(), cuts)
    assert table.text(state) == shape_of(text.encode())


@given(texts)
def test_a_written_shape_follows_its_grammar_and_holds_nothing_of_the_text(text: str) -> None:
    assert SHAPE_TEXT.fullmatch(shape_of(text.encode()))


@given(st.text("abcxyzé", min_size=1, max_size=9).filter(lambda word: word not in ("as", "by")), st.integers(10, 9999))
def test_other_literals_make_the_same_shape(word: str, number: int) -> None:
    this = f'{{"city": "{word} {word}", "n": {number}, "at": "'.encode()
    assert shape_of(this) == shape_of(b'{"city": "Bonn Mitte", "n": 12, "at": "')


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", "text d0 i0 |"),
        ("{", "json d1 key #0 | {"),
        ('{"ci', "json d1 in key #0 | ID"),
        ('{"city"', "json d1 colon #0 | { STR"),
        ('{"city": ', "json d1 value #0 | { STR : WS"),
        ('{"city": "Bo', "json d1 in value #0 | ID"),
        ('{"city": "a\\"b', 'json d1 in value #0 | ID \\ " ID'),
        ('{"city": "Bonn"', "json d1 after #0 | STR : WS STR"),
        ('{"city": "Bonn", ', "json d1 key #1 | WS STR , WS"),
        ('{"n": 12', "json d1 scalar #0 | STR : WS NUM"),
        ('{"n": 12 ', "json d1 after #0 | : WS NUM WS"),
        ('{"n": true', "json d1 scalar #0 | STR : WS true"),
        ('{"a": {"b": [1, {"c": "x"}', "json d3 after #0.0.* | : WS STR }"),
        ('[[[["x"', "json d4 after #*.*.* | [ [ [ STR"),
        ('{"a": 1} ', "json d0 end # | WS NUM } WS"),
        ('{"a": 1}\n', "text d0 i0 | WS NUM } NL"),
        ('{"a": 1}\n{"b"', "json d1 colon #0 | } NL { STR"),
        ('```json\n{"a"', "json d1 colon #0 | STR NL { STR"),
        ("[x for x in y]", "text d0 i0 | in WS ID ]"),
        ("don't say 'hel", "text d0 i0 in ' | ID"),
        ('say "hel', 'text d0 i0 in " | ID'),
        ("it's 5 o'clock", "text d0 i0 | WS ID ' ID"),
        ("f(x, [1", "text d2 i0 | , WS [ NUM"),
        ("def f(x):\n    return x1", "text d0 i4 | WS return WS ID"),
        ("returned", "text d0 i0 | ID"),
        ("1st 2.5", "text d0 i0 | WS NUM . NUM"),
        ("Zürich 日本", "text d0 i0 | ID WS ID"),
        ("'open\nnext", "text d0 i0 | NL ID"),
    ],
)
def test_the_written_definition_by_example(text: str, shape: str) -> None:
    assert shape_of(text.encode()) == shape


def test_a_keyed_shape_holds_the_last_key_in_place_of_the_ordinal() -> None:
    table = ShapeTable(BYTES)
    state = table.start
    written = []
    for byte in b'{"city": "Bonn", "size": {"w':
        state = table.advance(state, byte)
        written.append(table.keyed_text(state))
    assert written[0] == ""
    assert written[6] == 'json d1 colon "city" | { STR'
    assert written[16] == 'json d1 key "city" | WS STR , WS'
    assert written[-1] == 'json d2 in key "size" | ID'
    assert all(is_keyed(text) for text in written[6:])
    assert not is_keyed(table.text(state))
    assert not is_keyed(shape_of(b'say "'))


def test_no_name_of_a_key_makes_a_keyed_shape_look_like_a_plain_one() -> None:
    for key in ('" | STR', " | STR", 'a" #0 | STR', "0", "#0", "é"):
        table = ShapeTable(BYTES)
        state = table.start
        for byte in json.dumps({key: 1}).encode():
            state = table.advance(state, byte)
            assert not is_keyed(table.text(state))
            assert not table.keyed_text(state) or is_keyed(table.keyed_text(state))


def test_a_key_that_is_too_long_or_no_unicode_is_none() -> None:
    for key in (b"k" * 41, b"\xff\xfe"):
        table = ShapeTable(BYTES)
        state = table.start
        for byte in b'{"' + key + b'": ':
            state = table.advance(state, byte)
        assert table.keyed_text(state) == ""


def test_a_token_that_the_vocabulary_lacks_changes_nothing() -> None:
    table = ShapeTable(TEXTS)
    state = table.advance(table.start, 1)
    assert table.advance(state, len(TEXTS) + 5) == state
    assert table.advance(state, -1) == state


def test_a_full_table_loses_shapes_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes_module, "MAX_STATES", 5)
    table = ShapeTable(BYTES)
    state = table.start
    assert not table.is_full
    for byte in b"[[[[[[[[":
        state = table.advance(state, byte)
    assert table.is_full
    assert state == table.lost
    assert table.advance(state, ord("x")) == table.lost
    assert table.text(table.lost) == table.keyed_text(table.lost) == ""
    assert table.n_states == 5
