"""An earlier pack's recipes earn their place again."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.copy_rules import Copy, CopyKind
from backend.domain.recipes.feedback import PackFeedback
from backend.domain.recipes.mining.building import PackOptions
from backend.domain.recipes.mining.merging import (
    learned_answers,
    merge_previous,
    merge_previous_copies,
    missed_by_shape,
    tried_by_recipe,
)
from backend.domain.recipes.pack import RecipePack
from tests.backend.domain.recipes.letters import pack, pack_of, recipe, tokens_of

GOOD = recipe(after="city", run='": "', support=40, agreed=39)
BAD = recipe(after="size", run="large red", support=40, agreed=40)


def feedback(**changed: Any) -> PackFeedback:
    empty: dict[str, Any] = {"n_answers": 1, "n_tokens": 9, "tried": [], "missed": [], "learned": []}
    return PackFeedback(artifact_sha256="aa" * 32, pack_sha256="bb" * 32, **(empty | changed))


def test_support_halves_with_every_merge_until_a_recipe_leaves() -> None:
    kept = [GOOD]
    supports = []
    while kept:
        supports.append((kept[0].support, kept[0].agreed))
        kept = merge_previous(pack(*kept))
    assert supports == [(40, 39), (20, 19), (10, 9)]  # 5 with 4 is below 90 %


def test_what_serving_refused_leaves_and_what_it_accepted_counts() -> None:
    told = feedback(tried=[{"id": GOOD.id, "tried": 60, "accepted": 60}, {"id": BAD.id, "tried": 300, "accepted": 269}])
    assert [(one.after_text, one.support, one.agreed) for one in merge_previous(pack(GOOD, BAD), [told])] == [
        ("city", 20 + 60, 19 + 60)
    ]


def test_copy_recipes_earn_their_place_again_too() -> None:
    begins = Copy(what=CopyKind.BEGINS, place='text "city"', cue="first U", support=40, agreed=40)
    says = Copy(what=CopyKind.FOLLOWS_WORD, place="k", cue="", run=(4, 5), run_text="x", support=40, agreed=40)
    old = Copy(what=CopyKind.OPEN, place='text "city"', cue="before P", support=1, agreed=1)
    doubted = Copy(what=CopyKind.OPEN, place='text "city"', cue="before N", support=8, agreed=4)
    told = feedback(tried=[{"id": begins.id, "tried": 90, "accepted": 20}, {"id": says.id, "tried": 6, "accepted": 6}])
    kept = merge_previous_copies(pack(copies=(begins, says, old, doubted)), [told])
    assert [(one.id, one.support, one.agreed) for one in kept] == [(says.id, 23, 23), (doubted.id, 4, 2)]


def test_counts_of_one_recipe_add_up_over_reports() -> None:
    rows = [{"id": GOOD.id, "tried": 3, "accepted": 2}]
    assert tried_by_recipe([feedback(tried=rows), feedback(tried=rows)]) == {GOOD.id: (6, 4)}
    missed = [{"shape": "text d0 i0 |", "n": 2}]
    assert missed_by_shape([feedback(missed=missed), feedback(missed=missed)]) == {"text d0 i0 |": 4}


def test_learned_runs_become_answers_unless_the_vocabulary_lacks_a_token() -> None:
    rows = [{"tokens": list(tokens_of("red"))}, {"tokens": [10**6]}]
    assert [one.tokens for one in learned_answers([feedback(learned=rows)], 500)] == [tokens_of("red")]


@given(st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 4))
def test_what_goes_on_agreed_at_least_nine_times_in_ten(
    support: int, agreed: int, tried: int, accepted: int, halvings: int
) -> None:
    one = recipe(after="city", run="x", support=support, agreed=min(agreed, support))
    told = feedback(tried=[{"id": one.id, "tried": tried, "accepted": min(accepted, tried)}])
    for gone_on in merge_previous(pack(one), [told], halvings=halvings):
        assert 0.9 * gone_on.support <= gone_on.agreed <= gone_on.support
        assert gone_on.support >= 1
        assert gone_on.id == one.id


def test_merging_again_and_again_never_outgrows_the_budget() -> None:
    made: RecipePack = pack_of([])
    for day in range(6):
        texts = [f'{{"city": "{chr(97 + day)}{n % 3}", "size": "large"}}' for n in range(9)]
        made = pack_of(texts, kept=merge_previous(made), max_bytes=2_500)
        assert len(made.to_bytes()) <= 2_500
    assert PackOptions().max_bytes == 65_536
