"""Packs from observations: what is kept, what it says of itself, and what it saves."""

import json
import random
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json
from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.mining.building import PackOptions
from backend.domain.recipes.mining.corpus import corpus_of, grouped_by_literal
from backend.domain.recipes.mining.runs import whole_length
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import BEGIN, RecipePack, read_pack
from backend.domain.recipes.shapes import shape_of
from tests.backend.domain.recipes.letters import (
    END,
    TEXTS,
    observed,
    pack_of,
    pack_of_observed,
    recipe,
    tokens_of,
)
from tests.greedy_replay import Replayed, replay


def orders(n: int, seed: int = 1) -> list[str]:
    """Answers of a task with a free value, an enum and a number."""
    rng = random.Random(seed)
    return [
        json.dumps(
            {
                "city": "".join(rng.choices("abcdefghij", k=rng.randint(3, 8))),
                "size": rng.choice(["large", "small"]),
                "n": rng.randint(1, 99),
                "colour": "red",
            }
        )
        for _ in range(n)
    ]


def replayed(made: RecipePack, texts: list[str]) -> Replayed:
    index = PackIndex(made, TEXTS)
    return replay([tokens_of(text) for text in texts], lambda i: index.cursor(), max_draft=made.max_draft)


def test_a_pack_drafts_what_a_task_always_says_and_little_else() -> None:
    made = pack_of(orders(80))
    counts = replayed(made, orders(80, seed=2))
    assert counts.n_tokens / counts.n_steps > 2
    assert counts.n_accepted > 0.97 * counts.n_drafted
    assert read_pack(made.to_bytes()) == made


def test_the_saving_is_no_more_than_the_coverage_allows() -> None:
    counts = replayed(pack_of(orders(80)), orders(80, seed=2))
    assert counts.n_tokens / counts.n_steps <= 1 / (1 - counts.n_accepted / counts.n_tokens) + 1e-9


@pytest.mark.nightly
@given(st.randoms(use_true_random=False))
def test_equal_observations_in_any_order_give_equal_bytes(rng: random.Random) -> None:
    rows = [observed(text) for text in orders(12)]
    shuffled = rng.sample(rows, len(rows))
    assert pack_of_observed(shuffled).to_bytes() == pack_of_observed(rows).to_bytes()


@pytest.mark.parametrize("max_bytes", [850, 950, 1_050])
def test_a_pack_never_grows_past_its_budget_and_spends_it_on_what_saves_most(max_bytes: int) -> None:
    small, large = pack_of(orders(60), max_bytes=max_bytes), pack_of(orders(60))
    assert len(small.to_bytes()) <= max_bytes
    assert len(small.recipes) < len(large.recipes)
    assert replayed(small, orders(60)).n_steps >= replayed(large, orders(60)).n_steps


def test_a_small_budget_keeps_most_of_the_saving() -> None:
    texts = orders(60)
    bare = replayed(pack_of([]), texts).n_steps
    small, large = (replayed(pack_of(texts, max_bytes=n), texts).n_steps for n in (1_100, 65_536))
    assert bare - small > 0.8 * (bare - large)


def test_the_file_is_in_order_of_frequency_and_counts_what_it_was_made_of() -> None:
    made = pack_of(orders(30))
    supports = [one.support for one in made.recipes]
    assert supports == sorted(supports, reverse=True)
    assert made.stats["n_answers"] == made.stats["n_samples"] == 30
    assert made.stats["n_tokens"] == made.stats["n_agreed_tokens"] == sum(len(tokens_of(text)) for text in orders(30))
    assert made.stats["n_recipes"] == len(made.recipes)


def test_a_run_is_kept_while_enough_of_its_places_follow() -> None:
    texts = ["red large"] * 9 + ["red small"]
    run = next(one for one in pack_of(texts, min_agreement_ppm=900_000).recipes if one.after_text == "red")
    assert (run.run_text, run.support, run.agreed) == (" large", 10, 9)
    run = next(one for one in pack_of(texts, min_agreement_ppm=910_000).recipes if one.after_text == "red")
    assert (run.run_text, run.support, run.agreed) == (" ", 10, 10)


def test_what_was_seen_too_seldom_is_no_recipe() -> None:
    assert pack_of(["red large"] * 2).recipes == ()
    assert pack_of(["red large"] * 3).recipes
    assert pack_of(["red large"] * 3, min_support=4).recipes == ()


def test_a_token_on_which_the_samples_disagree_is_drafted_less() -> None:
    sure = [observed("red large", "red large", "red large") for _ in range(10)]
    unsure = [observed("red large", "red large", "red small") for _ in range(10)]
    assert "red" in {one.after_text for one in pack_of_observed(sure, shapes=False).recipes if " large" in one.run_text}
    assert not [one for one in pack_of_observed(unsure).recipes if "large" in one.run_text]


def test_nothing_is_drafted_after_an_end_token() -> None:
    for one in pack_of(["red"] * 9 + ["red large"] * 9, min_agreement_ppm=400_000).recipes:
        assert END not in one.run[:-1]
        assert END not in one.after


def test_runs_end_and_contexts_begin_with_whole_characters() -> None:
    texts = [f"aé{sign}é😀{sign}b" for sign in "äöüßñçø"] * 4  # a byte is a token here
    for one in pack_of(texts).recipes:
        assert b"".join(TEXTS[token] for token in one.run).decode() == one.run_text
        assert b"".join(TEXTS[token] for token in one.after if token != BEGIN).decode() == one.after_text


@given(st.text(max_size=6), st.integers(0, 24))
def test_a_whole_length_counts_the_tokens_that_make_whole_characters(text: str, n: int) -> None:
    cut = [bytes([byte]) for byte in text.encode()][:n]
    whole = whole_length(cut)
    assert text.startswith(b"".join(cut[:whole]).decode())
    assert len(cut) - whole < 4


def test_a_recipe_of_the_shape_speaks_for_values_that_were_never_seen() -> None:
    texts = [json.dumps({"size": letter, "n": 1}) for letter in string.ascii_lowercase]
    unseen = [json.dumps({"size": "Z", "n": 1})]
    with_shapes, without = (replayed(pack_of(texts, contexts=(1,), shapes=shapes), unseen) for shapes in (True, False))
    assert with_shapes.n_steps < without.n_steps


def test_a_kept_recipe_adds_its_counts_or_stands_by_itself() -> None:
    texts = ["red large"] * 10
    same = replace(recipe(after="red", run=" large", support=40, agreed=39), run=(*tokens_of(" large"),))
    same = next(one for one in pack_of(texts, kept=[same]).recipes if one.after_text == "red")
    assert (same.support, same.agreed) == (50, 49)
    other = recipe(after="colour", run='": "', support=40, agreed=40)
    assert other in pack_of(texts, kept=[other]).recipes
    assert pack_of([], kept=[other]).recipes == (other,)


def test_what_is_observed_outweighs_a_kept_recipe_for_the_same_place() -> None:
    kept = recipe(after="red", run=" small", support=40, agreed=40)
    speaking = [one for one in pack_of(["red large"] * 10, kept=[kept]).recipes if one.after_text == "red"]
    assert [one.run_text for one in speaking] == [" large"]


def test_missed_shapes_decide_where_room_is_scarce() -> None:
    rows = [observed(text) for text in ["red large"] * 8 + ["7 small"] * 9]
    room: dict[str, Any] = {"max_bytes": 760, "contexts": (1,), "shapes": False}
    assert [one.after_text for one in pack_of_observed(rows, **room).recipes] == ["7"]
    missed = {shape_of(b"red"): 3}
    assert [one.after_text for one in pack_of_observed(rows, missed=missed, **room).recipes] == ["red"]


def test_no_observations_make_an_empty_pack() -> None:
    assert pack_of([]).recipes == ()
    assert pack_of_observed([Observed(tokens=(), agreed=(), n_samples=1)]).recipes == ()


@given(st.lists(st.lists(st.integers(1, 3), max_size=7), min_size=1, max_size=6), st.integers(1, 3))
def test_places_are_grouped_as_looking_back_groups_them(answers: list[list[int]], min_support: int) -> None:
    rows = [Observed(tokens=tuple(answer), agreed=(1,) * len(answer), n_samples=1) for answer in answers]
    corpus = corpus_of(rows, TEXTS)
    tokens = corpus.tokens.tolist()
    for m, groups in grouped_by_literal(corpus, (4, 2, 1), min_support).items():
        behind: dict[tuple[int, ...], list[int]] = {}
        for at in range(m, len(tokens)):
            context = tuple(tokens[at - m : at])
            if BEGIN not in context[1:] and -2 not in context and tokens[at] != BEGIN:
                behind.setdefault(context, []).append(at)
        large = {
            frozenset(at for at in places if tokens[at] != -2)
            for places in behind.values()
            if len(places) >= min_support
        }
        found: dict[int, set[int]] = {}
        for at, group in enumerate(groups.tolist()):
            if group >= 0:
                found.setdefault(group, set()).add(at)
        assert {frozenset(places) for places in found.values()} == large - {frozenset()}


def test_options_cross_the_seam_and_refuse_what_they_are_not() -> None:
    options = PackOptions(max_bytes=1000, contexts=(3, 1))
    assert PackOptions.from_json(json.loads(canonical_json(options.to_json()))) == options
    of_older = {name: value for name, value in options.to_json().items() if name != "copies"}
    assert PackOptions.from_json(of_older) == options
    for changed in ({"max_draft": 65}, {"contexts": [17]}, {"max_bytes": 0}, {"min_support": 1.5}, {"more": 1}):
        with pytest.raises(ValueError):
            PackOptions.from_json(options.to_json() | changed)
