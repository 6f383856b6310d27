"""Copy recipes: learnt from answers and their prompts, looked up in other prompts."""

import random
from dataclasses import replace

import pytest

from backend.domain.recipes.copy_rules import Copy, CopyKind
from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.observing import Observed, observe
from backend.domain.recipes.pack import RecipePack, read_pack
from tests.backend.domain.recipes.letters import END, TEXTS, pack, pack_of_observed, tokens_of
from tests.greedy_replay import GreedyDraft, replay

FRAME = ((300_000,), (300_001,))  # beyond the vocabulary: no text
SYLLABLES = ("Ul", "Mö", "Ka", "Je", "Tri", "Ho", "Wei", "Bra", "Lu", "Sta")


def prompt_of(text: str) -> tuple[int, ...]:
    return (*tokens_of("city and size")[:-1], *FRAME[0], *tokens_of(text)[:-1], *FRAME[1])


def made(n: int, seed: int) -> list[tuple[str, str]]:
    """(input, answer): a city after "to", a size that a word tells, a number."""
    draw, rows = random.Random(seed), []
    for _ in range(n):
        words = ["".join(draw.choices(SYLLABLES, k=2)).title() for _ in range(draw.randrange(1, 4))]
        city, large, count = " ".join(words), draw.random() < 0.5, draw.randrange(100, 999)
        text = f"{draw.choice(('send', 'ship'))} {count} {'wide' if large else 'tiny'} ones to {city}, thanks"
        rows.append((text, f'{{"city": "{city}", "size": "{"large" if large else "small"}", "n": {count}}}'))
    return rows


def observed_of(rows: list[tuple[str, str]]) -> list[Observed]:
    return [observe(tokens_of(answer), [], prompt=prompt_of(text)) for text, answer in rows]


PACK = pack_of_observed(observed_of(made(60, 1)), frame=FRAME)


def drafted(found: RecipePack, text: str, written: str) -> str:
    index = PackIndex(found, TEXTS)
    cursor = index.cursor(prompt_of(text))
    for token in tokens_of(written)[:-1]:
        cursor.advance(token)
    return b"".join(TEXTS[token] for token in GreedyDraft(cursor, (END,)).propose(64)).decode()


def test_values_are_copied_and_closed_and_words_tell_what_is_no_copy() -> None:
    said = drafted(PACK, "send 417 tiny ones to Nowhere Hill, thanks", '{"')
    assert said == 'city": "Nowhere Hill", "size": "small", "n": 417}'


def test_a_copy_goes_on_from_what_the_model_began() -> None:
    text = "ship 417 wide ones to Castle Rock, thanks"
    assert drafted(PACK, text, '{"city": "Castle').startswith(' Rock", "size": "large"')
    assert drafted(PACK, text, '{"city": "elsewhere') == ""


def test_without_a_prompt_or_outside_its_frame_nothing_is_copied() -> None:
    cursor = PackIndex(PACK, TEXTS).cursor()
    for token in tokens_of('{"city": "')[:-1]:
        cursor.advance(token)
    assert not cursor.propose(9)
    other = PackIndex(PACK, TEXTS).cursor(tokens_of("to Bonn, thanks"))
    for token in tokens_of('{"city": "')[:-1]:
        other.advance(token)
    assert not other.propose(9)


def test_copies_save_steps_on_answers_that_nobody_saw() -> None:
    unseen = made(30, 2)
    plain = replace(PACK, copies=(), frame=((), ()))
    steps = []
    for one in (plain, PACK):
        index = PackIndex(one, TEXTS)
        answers = [tokens_of(answer) for _, answer in unseen]
        told = replay(
            answers, lambda i, index=index: GreedyDraft(index.cursor(prompt_of(unseen[i][0])), (END,)), max_draft=16
        )
        assert told.n_accepted >= 0.85 * told.n_drafted
        steps.append(told.n_steps)
    assert steps[1] * 2 < steps[0]


def test_equal_observations_in_any_order_give_equal_bytes() -> None:
    rows = observed_of(made(60, 1))
    random.Random(5).shuffle(rows)
    assert pack_of_observed(rows, frame=FRAME).to_bytes() == PACK.to_bytes()
    assert read_pack(PACK.to_bytes()) == PACK


def test_without_prompts_a_pack_is_what_it_was() -> None:
    rows = [replace(one, prompt=()) for one in observed_of(made(40, 1))]
    found = pack_of_observed(rows)
    assert found.copies == ()
    assert found.to_bytes() == pack_of_observed(rows, copies=False).to_bytes()
    assert b"kolm-recipes/1" in found.to_bytes()


@pytest.mark.nightly
def test_a_pack_with_copies_keeps_its_budget() -> None:
    for budget in (900, 2_000, 4_000, 6_000):
        found = pack_of_observed(observed_of(made(60, 1)), frame=FRAME, max_bytes=budget)
        assert len(found.to_bytes()) <= max(budget, 760)


def test_values_on_which_samples_disagree_are_not_learnt() -> None:
    rows = []
    for text, answer in made(60, 1):
        tokens = tokens_of(answer)
        others = [tokens_of(answer.replace('"city": "', f'"city": "{name} ')) for name in ("Old", "New")]
        rows.append(observe(tokens, [tokens, *others], prompt=prompt_of(text)))
    found = pack_of_observed(rows, frame=FRAME)
    assert not [one for one in found.copies if one.what is CopyKind.BEGINS and "city" in one.place]


def test_what_an_earlier_pack_knew_stands_behind_what_was_learnt_and_frames_it_alone() -> None:
    old = Copy(what=CopyKind.BEGINS, place='text "city"', cue="first U after: towards ", support=9, agreed=9)
    both = pack_of_observed(observed_of(made(60, 1)), frame=FRAME, kept_copies=[old])
    cues = [one.cue for one in both.copies if one.what is CopyKind.BEGINS and one.place == old.place]
    assert len(cues) > 1
    assert cues[-1] == old.cue
    alone = pack_of_observed([], kept_copies=PACK.copies, frame=FRAME)
    assert (alone.copies, alone.frame) == (PACK.copies, PACK.frame)


def test_looking_ahead_moves_no_cursor() -> None:
    cursor = PackIndex(PACK, TEXTS).cursor(prompt_of("send 417 tiny ones to Nowhere, thanks"))
    for token in tokens_of('{"city": "No')[:-1]:
        cursor.advance(token)
    before = list(cursor.propose(9))
    ahead = cursor.copy()
    for token in before:
        ahead.advance(token)
    ahead.propose(9)
    assert list(cursor.propose(9)) == before
    assert cursor.proposed >= len(PACK.recipes)


def test_recipes_that_name_what_the_vocabulary_lacks_are_silent() -> None:
    bad = Copy(
        what=CopyKind.FOLLOWS_WORD,
        place='json d1 in key "city" |',
        cue="",
        run=(9_999,),
        run_text="?",
        support=3,
        agreed=3,
    )
    found = pack(copies=(bad,), frame=((), ()))
    cursor = PackIndex(found, TEXTS).cursor(tokens_of("x"))
    for token in tokens_of('{"city": "a", "')[:-1]:
        cursor.advance(token)
    assert not cursor.propose(4)
