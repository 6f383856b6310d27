"""recipes.json: written one way, read strictly."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json, sha256_of
from backend.domain.recipes.copy_rules import Copy, CopyKind
from backend.domain.recipes.pack import BEGIN, MAX_PACK_BYTES, InvalidPack, Recipe, RecipePack, read_pack
from tests.backend.domain.recipes.letters import TOKENIZER, pack, recipe

SMALL = pack(
    recipe(after='"}', run="\n", support=9, agreed=9),
    recipe(shape='json d1 after "city" | WS STR', run=', "size": "', support=7, agreed=7),
    sources=("pack", "prompt"),
    stats={"n_answers": 12},
)

BEGINS = Copy(what=CopyKind.BEGINS, place='text "city"', cue="first U after: to ", support=9, agreed=9)
FOLLOWS_WORD = Copy(what=CopyKind.FOLLOWS_WORD, place="k", cue="", run=(5,), run_text="city", support=4, agreed=4)

tokens = st.integers(0, 2000)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
literal = st.builds(
    lambda begins, after, run, before, text, n: Recipe(
        after=(BEGIN, *after) if begins else tuple(after),
        shape="",
        run=tuple(run),
        after_text=before,
        run_text=text,
        support=n + 1,
        agreed=n,
    ),
    st.booleans(),
    st.lists(tokens, min_size=1, max_size=8),
    st.lists(tokens, min_size=1, max_size=16),
    texts,
    texts,
    st.integers(0, 2**40),
)


def altered(**changed: Any) -> bytes:
    """SMALL with other members, and its own hash made right again."""
    value = SMALL.to_json() | changed
    return with_hash({name: part for name, part in value.items() if part is not None})


def with_hash(value: dict[str, Any]) -> bytes:
    content = {name: part for name, part in value.items() if name != "sha256"}
    return canonical_json(content | {"sha256": sha256_of(content)})


@given(st.lists(literal, max_size=5, unique_by=lambda one: one.place))
def test_a_pack_is_read_as_it_was_written(recipes: list[Recipe]) -> None:
    written = pack(*recipes, stats={"n_answers": 3})
    assert read_pack(written.to_bytes()) == written


def test_the_file_names_its_columns_and_shows_text_beside_ids() -> None:
    value = json.loads(SMALL.to_bytes())
    assert value["columns"] == ["after", "run", "after_ids", "run_ids", "support", "agreed"]
    assert value["recipes"][0] == ['"}', "\n", [4], [14], 9, 9]
    assert value["recipes"][1][:3] == ['json d1 after "city" | WS STR', ', "size": "', []]
    assert value["sha256"] == SMALL.sha256


def test_the_id_of_a_recipe_does_not_depend_on_its_counts() -> None:
    one, more = recipe(after="city", run='": "'), recipe(after="city", run='": "', support=80, agreed=79)
    assert one.id == more.id
    assert len(one.id) == 16
    assert one.id != recipe(after="size", run='": "').id


def test_what_artifacts_carried_before_there_were_packs_is_an_empty_pack() -> None:
    assert read_pack(b'{"entries": []}').recipes == ()
    assert read_pack(canonical_json({"entries": []}), tokenizer_sha256=TOKENIZER) == RecipePack.empty()


def test_a_pack_of_another_tokenizer_is_refused_unless_it_is_empty() -> None:
    assert read_pack(SMALL.to_bytes(), tokenizer_sha256=TOKENIZER) == SMALL
    with pytest.raises(InvalidPack, match="tokenizer") as refused:
        read_pack(SMALL.to_bytes(), tokenizer_sha256="00" * 32)
    assert refused.value.code == "tokenizer_mismatch"
    empty = RecipePack.empty(tokenizer_sha256=TOKENIZER, sources=("prompt",))
    assert read_pack(empty.to_bytes(), tokenizer_sha256="00" * 32) == empty


def test_an_oversized_pack_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(InvalidPack) as refused:
        read_pack(b"[" * (MAX_PACK_BYTES + 1))
    assert refused.value.code == "pack_too_large"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"entries": [1]}',
        SMALL.to_bytes()[:-1],
        SMALL.to_bytes() + b"\n",
        SMALL.to_bytes().replace(b'"support"', b'"supporT"'),
        SMALL.to_bytes().replace(b"letters", b"lettres"),
    ],
)
def test_what_is_no_pack_or_was_altered_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidPack) as refused:
        read_pack(data)
    assert refused.value.code == "invalid_pack"


ROW = SMALL.to_json()["recipes"][0]


@pytest.mark.parametrize(
    "changed",
    [
        {"format": "kolm-recipes/2"},
        {"base": 3},
        {"max_draft": 0},
        {"max_draft": 65},
        {"max_draft": True},
        {"sources": ["disk"]},
        {"sources": ["pack", "pack"]},
        {"sources": "pack"},
        {"stats": {"n": 1.5}},
        {"stats": [1]},
        {"stats": None},
        {"columns": []},
        {"more": 1},
        {"recipes": None},
        {"recipes": [ROW, ROW]},
        {"recipes": [ROW[:-1]]},
        {"recipes": [dict.fromkeys("abcdef", 1)]},
        {"recipes": [[*ROW[:3], [], 9, 9]]},
        {"recipes": [[*ROW[:3], [1] * 65, 9, 9]]},
        {"recipes": [[*ROW[:3], [-1], 9, 9]]},
        {"recipes": [[*ROW[:3], [1.5], 9, 9]]},
        {"recipes": [[*ROW[:3], [1 << 24], 9, 9]]},
        {"recipes": [[*ROW[:2], [3, -1], [1], 9, 9]]},
        {"recipes": [[*ROW[:2], [-2], [1], 9, 9]]},
        {"recipes": [[*ROW[:2], [1] * 17, [1], 9, 9]]},
        {"recipes": [["", "x", [], [1], 9, 9]]},
        {"recipes": [["s" * 201, "x", [], [1], 9, 9]]},
        {"recipes": [[3, *ROW[1:]]]},
        {"recipes": [[*ROW[:4], 9, 10]]},
        {"recipes": [[*ROW[:4], 0, 0]]},
        {"recipes": [[*ROW[:4], 9, -1]]},
    ],
)
def test_a_member_that_breaks_the_form_is_refused_though_the_hash_is_right(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidPack) as refused:
        read_pack(altered(**changed))
    assert refused.value.code == "invalid_pack"


COPYING = replace(SMALL, copies=(BEGINS, FOLLOWS_WORD), frame=((1, 2), (3,)))
COPY_ROW, SAYS_ROW = COPYING.to_json()["copies"]


def test_copy_recipes_make_a_second_format_and_a_pack_without_them_is_of_the_first() -> None:
    value = json.loads(COPYING.to_bytes())
    assert (value["format"], SMALL.to_json()["format"]) == ("kolm-recipes/2", "kolm-recipes/1")
    assert value["copy_columns"] == ["what", "place", "cue", "run", "run_ids", "support", "agreed"]
    assert value["copies"][0] == ["begins", 'text "city"', "first U after: to ", "", [], 9, 9]
    assert value["frame"] == [[1, 2], [3]]
    assert read_pack(COPYING.to_bytes(), tokenizer_sha256=TOKENIZER) == COPYING
    assert (COPYING.id_of(0), COPYING.id_of(len(SMALL.recipes))) == (SMALL.recipes[0].id, BEGINS.id)


def test_copies_alone_are_of_a_tokenizer_too() -> None:
    alone = replace(COPYING, recipes=())
    assert not alone.is_empty
    with pytest.raises(InvalidPack, match="tokenizer"):
        read_pack(alone.to_bytes(), tokenizer_sha256="00" * 32)


@pytest.mark.parametrize(
    "changed",
    [
        {"format": "kolm-recipes/1"},
        {"format": "kolm-recipes/3"},
        {"frame": None},
        {"frame": [[1]]},
        {"frame": [[1], [2], [3]]},
        {"frame": [[-1], []]},
        {"frame": [[1] * 17, []]},
        {"frame": [["1"], []]},
        {"copy_columns": None},
        {"copies": None},
        {"copies": []},
        {"copies": {}},
        {"copies": [COPY_ROW, COPY_ROW]},
        {"copies": [COPY_ROW, [*COPY_ROW[:5], 4, 4]]},
        {"copies": [COPY_ROW[:-1]]},
        {"copies": [["copies", *COPY_ROW[1:]]]},
        {"copies": [[["begins"], *COPY_ROW[1:]]]},
        {"copies": [["begins", "", *COPY_ROW[2:]]]},
        {"copies": [["begins", "p" * 201, *COPY_ROW[2:]]]},
        {"copies": [[*COPY_ROW[:2], "", *COPY_ROW[3:]]]},
        {"copies": [[*COPY_ROW[:2], "c" * 201, *COPY_ROW[3:]]]},
        {"copies": [[*COPY_ROW[:3], "x", [], 9, 9]]},
        {"copies": [[*COPY_ROW[:3], "", [1], 9, 9]]},
        {"copies": [[*COPY_ROW[:5], 9, 10]]},
        {"copies": [[*COPY_ROW[:5], 0, 0]]},
        {"copies": [[*SAYS_ROW[:4], [], 9, 9]]},
        {"copies": [[*SAYS_ROW[:4], [1] * 65, 9, 9]]},
        {"copies": [[*SAYS_ROW[:4], [-1], 9, 9]]},
        {"copies": [[*SAYS_ROW[:4], [1 << 24], 9, 9]]},
        {"copies": [[*SAYS_ROW[:4], [True], 9, 9]]},
    ],
)
def test_copies_that_break_the_form_are_refused(changed: dict[str, Any]) -> None:
    value = COPYING.to_json() | changed
    with pytest.raises(InvalidPack) as refused:
        read_pack(with_hash({name: part for name, part in value.items() if part is not None}))
    assert refused.value.code == "invalid_pack"


def test_text_that_is_no_unicode_is_refused() -> None:
    data = SMALL.to_bytes().replace(b"letters", b"\\ud800")
    with pytest.raises(InvalidPack, match="no recipe pack"):
        read_pack(data)
