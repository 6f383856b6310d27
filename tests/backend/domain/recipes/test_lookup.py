"""Look-up: the automaton against looking back at the whole answer."""

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes import lookup as lookup_module
from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.pack import BEGIN, Recipe
from tests.backend.domain.recipes.letters import TEXTS, pack, recipe, tokens_of

few_tokens = st.integers(20, 23)
contexts = st.lists(
    st.tuples(st.booleans(), st.lists(few_tokens, max_size=4)).filter(lambda one: one[0] or bool(one[1])),
    max_size=12,
    unique_by=lambda one: (one[0], tuple(one[1])),
)


def literal(after: tuple[int, ...], run: tuple[int, ...]) -> Recipe:
    return Recipe(after=after, shape="", run=run, after_text="", run_text="", support=3, agreed=3)


def looked_back(recipes: list[Recipe], answer: list[int]) -> int:
    """By the definition: the longest `after` that the answer, with its beginning, ends with."""
    text = (BEGIN, *answer)
    fitting = [i for i, one in enumerate(recipes) if text[len(text) - len(one.after) :] == one.after]
    return max(fitting, key=lambda i: len(recipes[i].after), default=-1)


@given(contexts, st.lists(few_tokens, max_size=20), st.integers(1, 4))
def test_the_longest_literal_context_is_found_at_every_token(
    found: list[tuple[bool, list[int]]], answer: list[int], most: int
) -> None:
    recipes = [literal(((BEGIN,) * begins + tuple(after)), (100 + i, 7, 8)) for i, (begins, after) in enumerate(found)]
    cursor = PackIndex(pack(*recipes), TEXTS).cursor()
    for n in range(len(answer) + 1):
        expected = looked_back(recipes, answer[:n])
        assert list(cursor.propose(most)) == ([] if expected < 0 else list(recipes[expected].run[:most]))
        assert cursor.proposed == expected
        if n < len(answer):
            cursor.advance(answer[n])


def test_a_literal_context_speaks_before_the_keyed_shape_and_that_before_the_shape() -> None:
    plain = recipe(shape="json d1 after #0 | STR : WS STR", run=", plain")
    keyed = recipe(shape='json d1 after "city" | STR : WS STR', run=", keyed")
    near = recipe(after='Bonn"', run=", near")
    answers = {"Bonn": near, "Kiel": keyed}
    for city, speaks in answers.items():
        cursor = PackIndex(pack(plain, keyed, near), TEXTS).cursor()
        for token in tokens_of('{"city": "' + city)[:-1]:
            cursor.advance(token)
        cursor.advance(tokens_of('"')[0])
        assert tuple(cursor.propose(9)) == speaks.run
    cursor = PackIndex(pack(plain, keyed, near), TEXTS).cursor()
    for token in tokens_of('{"size": "large')[:-1]:
        cursor.advance(token)
    assert tuple(cursor.propose(9)) == ()
    cursor.advance(tokens_of('"')[0])
    assert tuple(cursor.propose(9)) == plain.run
    assert cursor.shape == plain.shape


def test_an_empty_pack_proposes_nothing() -> None:
    cursor = PackIndex(pack(), TEXTS).cursor()
    for token in tokens_of('{"city": "Bonn"}'):
        assert cursor.propose(8) == ()
        assert cursor.proposed == -1
        cursor.advance(token)


def test_recipes_of_tokens_beyond_the_vocabulary_and_of_other_shapes_are_left_out() -> None:
    beyond = len(TEXTS)
    of_begin = literal((BEGIN,), (beyond,))
    known = literal((BEGIN, 5), (6,))
    cursor = PackIndex(pack(of_begin, known), TEXTS).cursor()
    assert cursor.propose(4) == ()
    cursor.advance(5)
    assert list(cursor.propose(4)) == [6]
    shaped = pack(recipe(shape="text d0 i0 |", run="city"), shape_version="kolm-shape-0")
    assert PackIndex(shaped, TEXTS).cursor().propose(4) == ()


def test_a_copy_looks_ahead_and_leaves_its_cursor_alone() -> None:
    cursor = PackIndex(pack(recipe(after='{"', run="city"), recipe(after="city", run='": "')), TEXTS).cursor()
    cursor.advance(tokens_of('{"')[0])
    ahead = cursor.copy()
    ahead.advance(tokens_of("city")[0])
    assert list(ahead.propose(4)) == list(tokens_of('": "'))[:-1]
    assert list(cursor.propose(4)) == list(tokens_of("city"))[:-1]


def test_a_full_memory_changes_no_proposal(monkeypatch) -> None:
    monkeypatch.setattr(lookup_module, "MAX_MEMO", 0)
    test_the_longest_literal_context_is_found_at_every_token()


def test_tokens_that_no_vocabulary_has_are_taken_without_harm() -> None:
    cursor = PackIndex(pack(recipe(after="city", run='": "')), TEXTS).cursor()
    for token in (10**9, -7, tokens_of("city")[0]):
        cursor.advance(token)
    assert list(cursor.propose(4)) == list(tokens_of('": "'))[:-1]
