"""The margin above k: what a planted guess can learn."""

import math
from hashlib import sha256
from itertools import pairwise

import pytest

from backend.domain.recipes.registry.anonymity import Counted, choose_released, margin_of
from backend.domain.recipes.registry.epochs import Entry

SHAPE = "json d1 key #1 | STR : STR ,"


def drawn(text: str) -> bytes:
    return sha256(text.encode()).digest()


def entry(name: str) -> Entry:
    return Entry(shape=SHAPE, run=f' "{name}": "')


@pytest.mark.parametrize("most", [0, 1, 4, 6, 11])
def test_one_party_more_changes_the_odds_of_a_release_by_a_factor_of_e_at_most(most):
    """(1, delta)-differential privacy of one entry, delta being the chance of no margin at all: P(n + 1 is enough) <=
    e P(n is enough) + delta, and the same for what is held back."""
    grid = 20_000
    chance = [0.0] * (most + 1)
    for i in range(grid):
        chance[margin_of(int((i + 0.5) / grid * 2**64).to_bytes(8, "big"), most)] += 1 / grid
    below = [sum(chance[:n]) for n in range(most + 2)]
    assert math.isclose(below[-1], 1)
    for fewer, more in pairwise(below):
        assert more <= math.e * fewer + chance[0] + 1e-3
        assert 1 - fewer <= math.e * (1 - more) + chance[most] + 1e-3
    if most == 6:
        assert chance[0] == pytest.approx(1 / 42, rel=0.02)


def test_nothing_of_fewer_than_k_is_released_and_everything_of_k_and_the_margin_is():
    names = [a + b for a in "abcdefgh" for b in "ijklmnop"]
    for n, least, most in ((9, 0, 0), (10, 0, 6), (13, 38, 56), (16, 64, 64)):
        rows = [Counted(entry=entry(name), n_parties=n) for name in names]
        assert least <= len(choose_released(rows, k=10, margin=6, draw=drawn)) <= most


def test_variations_of_a_guess_share_its_threshold():
    """Otherwise each of them would be another chance of no margin."""
    for name in ("alpha", "beta", "gamma", "delta"):
        runs = [f' "{name}": "', f' "{name}": [', f' "{name}":{{', f'{{"{name}": ', f',\n "{name}": "']
        shapes = [SHAPE, "json d1 key #2 | : STR ,", "json d2 key #1.1 | : STR ,"]
        entries = [Entry(shape=shape, run=run) for shape in shapes for run in runs]
        for n in range(10, 17):
            told = choose_released([Counted(entry=e, n_parties=n) for e in entries], k=10, margin=6, draw=drawn)
            assert len(told) in (0, len(entries))


def test_what_is_not_structure_is_not_released_however_many_share_it():
    rows = [Counted(entry=Entry(shape=SHAPE, run=' "city": "Bern"'), n_parties=1_000)]
    rows += [Counted(entry=Entry(shape='json d1 key "x" | ,', run=' "'), n_parties=1_000)]
    assert choose_released(rows, k=10, margin=0, draw=drawn) == []


def test_of_too_many_the_most_shared_stay():
    rows = [Counted(entry=entry(name), n_parties=10 + n) for n, name in enumerate(("a", "b", "c"))]
    assert choose_released(rows, k=10, margin=0, draw=drawn, most=2) == [entry("c"), entry("b")]
