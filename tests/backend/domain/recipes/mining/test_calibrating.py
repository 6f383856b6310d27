"""How much support a task asks for: little where places decide, much where chance does."""

import random

from backend.domain.recipes.mining.calibrating import is_set_aside
from backend.domain.recipes.mining.corpus import corpus_of
from backend.domain.recipes.observing import Observed
from tests.backend.domain.recipes.letters import TEXTS, pack_of_observed


def answers(n: int, *, likely: float, seed: int = 1) -> list[Observed]:
    """Of 24 words at random; after each comes its own sign with the likelihood given, else another."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        tokens: list[int] = []
        for _ in range(12):
            word = rng.randrange(24)
            tokens += (20 + word, 100 + word if rng.random() < likely else 200 + rng.randrange(40))
        rows.append(Observed(tokens=(*tokens, 0), agreed=(1,) * 25, n_samples=1))
    return rows


def test_where_places_decide_the_least_support_is_enough() -> None:
    assert pack_of_observed(answers(60, likely=1.0), contexts=(1,), shapes=False).stats["least_support"] == 3


def test_where_runs_hold_by_chance_more_is_asked_for() -> None:
    made = pack_of_observed(answers(400, likely=0.8), contexts=(2, 1), shapes=False)
    assert made.stats["least_support"] > 3
    assert all(one.support >= made.stats["least_support"] for one in made.recipes)


def test_too_little_to_judge_by_asks_for_nothing_more() -> None:
    assert pack_of_observed(answers(6, likely=0.6), contexts=(2, 1), shapes=False).stats["least_support"] == 3


def test_the_option_is_never_undercut() -> None:
    made = pack_of_observed(answers(60, likely=1.0), contexts=(1,), shapes=False, min_support=5)
    assert made.stats["least_support"] >= 5


def test_every_third_answer_is_set_aside_as_a_whole() -> None:
    corpus = corpus_of(answers(9, likely=1.0), TEXTS)
    aside = is_set_aside(corpus)
    assert aside.sum() * 3 == len(corpus.tokens)
    assert aside[2 * 27 :][:27].all()
    assert not aside[: 2 * 27].any()
