"""Packs and prompts as sources, the shelf that holds packs, and what is told of them."""

import hashlib
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.copy_rules import Copy, CopyKind
from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.pack import BEGIN, MAX_PACK_BYTES, Recipe, RecipePack, read_pack
from backend.domain.recipes.shapes import SHAPE_VERSION
from gpu_runners.models.protocol import PackRef, Rejected
from gpu_runners.speculation.controller import Controller
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.feedback_log import FeedbackLog, PackLog
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.sources import MAX_MATCH, PackSource, PromptSource
from gpu_runners.speculation.step_costs import StepCosts
from tests.greedy_replay import GreedyDraft, replay

TEXTS = [bytes([i]) for i in range(128)]
TOKENIZER = "ab" * 32


def recipe(after: tuple[int, ...], run: tuple[int, ...]) -> Recipe:
    return Recipe(
        after=after,
        shape="",
        run=run,
        after_text="".join(chr(i) for i in after if i >= 0),
        run_text="".join(map(chr, run)),
        support=9,
        agreed=9,
    )


def pack(*recipes: Recipe, tokenizer: str = TOKENIZER) -> RecipePack:
    return RecipePack(tokenizer_sha256=tokenizer, base="b", recipes=recipes, shape_version=SHAPE_VERSION)


ONE = pack(recipe((BEGIN,), (65, 66, 67)), recipe((66, 67), (68, 69)))


def written(folder: Path, data: bytes) -> PackRef:
    path = folder / "recipes.json"
    path.write_bytes(data)
    return PackRef(key=hashlib.sha256(data).hexdigest(), path=path)


def shelf() -> PackShelf:
    return PackShelf(lambda: TEXTS, tokenizer_sha256=TOKENIZER)


def test_a_pack_goes_on_behind_what_others_drafted_without_moving() -> None:
    source = PackSource(PackIndex(ONE, TEXTS))
    assert list(source.propose((), 9)) == [65, 66, 67]
    assert source.key == 0
    assert list(source.propose((65, 66, 67), 9)) == [68, 69]
    assert source.key == 1
    assert list(source.propose((), 2)) == [65, 66]
    for token in (65, 66, 67):
        source.advance(token)
    assert list(source.propose((), 9)) == [68, 69]


CITIES = replace(
    pack(recipe(tuple(b'{"c'), tuple(b'": "'))),
    copies=(
        Copy(what=CopyKind.BEGINS, place='text "c"', cue="first U after: to ", support=9, agreed=9),
        Copy(what=CopyKind.ENDS, place='text "c"', cue="before: ,", support=9, agreed=9),
        Copy(what=CopyKind.GOES_ON, place='text "c"', cue="before a space and U", support=9, agreed=9),
        Copy(
            what=CopyKind.FOLLOWS_WORD,
            place='end of text "c"',
            cue="has a number",
            run=tuple(b'", "n": '),
            run_text='", "n": ',
            support=9,
            agreed=9,
        ),
        Copy(what=CopyKind.BEGINS, place='number "n"', cue="first N", support=9, agreed=9),
    ),
)


@pytest.mark.parametrize("most", [1, 3, 16])
def test_an_offline_replay_counts_what_a_drafter_without_gates_counts(most: int) -> None:
    index = PackIndex(read_pack(CITIES.to_bytes()), TEXTS)
    asked = [b"3 to New York, now", b"to Bonn, 12 of them", b"to Old Town, please", b"nothing"]
    cities = [b'"New York", "n": 3', b'"Bonn", "n": 12', b'"Old Town"', b'"Nowhere", "n": 1']
    answers = [b'{"c": ' + city + b"}" for city in cities]
    counts = Counter[str]()
    for prompt, answer in zip(asked, answers, strict=True):
        controller = Controller(StepCosts(), is_gated=False)
        drafter = Drafter([PackSource(index, None, prompt)], controller, max_draft=most, matcher=None)
        drafter.advance(answer[:1])
        counts["steps"] += 1
        at = 1
        while at < len(answer):
            draft = drafter.propose(most)
            n = next((i for i, (a, b) in enumerate(zip(draft, answer[at:], strict=False)) if a != b), len(draft))
            kept = answer[at : at + min(n, len(answer) - at) + 1]
            counts["drafted"] += len(draft)
            counts["accepted"] += drafter.observe_accepted(list(kept))
            counts["steps"] += 1
            at += len(kept)
    told = replay([list(one) for one in answers], lambda i: GreedyDraft(index.cursor(asked[i])), max_draft=most)
    assert (told.n_steps, told.n_drafted, told.n_accepted) == (counts["steps"], counts["drafted"], counts["accepted"])
    assert told.n_accepted >= 18


def test_copy_recipes_are_told_by_their_own_place() -> None:
    logs = FeedbackLog()
    log = logs.of("tenant", "k" * 64, CITIES)
    source = PackSource(PackIndex(CITIES, TEXTS), log, b"to Bonn, 12 of them")
    for token in b'{"c": "':
        source.advance(token)
    assert bytes(source.propose((), 9)) == b"Bonn"
    assert source.key == len(CITIES.recipes)
    log.count_run(source.key, 4, 4)
    log.count_answer([1], learns=False)
    ((_, told),) = logs.drain()
    assert told.tried == [{"id": CITIES.copies[0].id, "tried": 4, "accepted": 4}]
    assert "Bonn" not in str(told.to_json())


def test_a_shelf_reads_a_pack_once(tmp_path: Path) -> None:
    ref, one = written(tmp_path, ONE.to_bytes()), shelf()
    index = one.get(ref)
    ref.path.unlink()
    assert one.get(ref) is index
    one.forget(ref.key)
    with pytest.raises(Rejected, match="cannot be read"):
        one.get(ref)


def test_a_shelf_keeps_the_last_used(tmp_path: Path) -> None:
    small = PackShelf(lambda: TEXTS, tokenizer_sha256=TOKENIZER, keep=1)
    refs = []
    for n in (66, 67):
        (tmp_path / str(n)).mkdir()
        refs.append(written(tmp_path / str(n), pack(recipe((65,), (n,))).to_bytes()))
    assert not small.has(refs[0])
    first = small.get(refs[0])
    assert small.has(refs[0])
    small.get(refs[1])
    assert not small.has(refs[0])
    assert small.get(refs[0]) is not first


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ONE.to_bytes().replace(b'"b"', b'"c"'), "altered"),
        (b"[1]", "recipe pack|JSON"),
        (b"\xff", "JSON"),
        (b" " * (MAX_PACK_BYTES + 1), "more than"),
        (pack(recipe((65,), (66,)), tokenizer="cd" * 32).to_bytes(), "tokenizer"),
    ],
)
def test_a_bad_pack_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(Rejected, match=why) as caught:
        shelf().get(written(tmp_path, data))
    assert caught.value.code == "bad_pack"


def test_bytes_that_are_not_those_of_the_key_are_refused(tmp_path: Path) -> None:
    ref = written(tmp_path, ONE.to_bytes())
    with pytest.raises(Rejected, match="key"):
        shelf().get(PackRef(key="0" * 64, path=ref.path))


def test_an_empty_pack_has_nothing_and_is_fine(tmp_path: Path) -> None:
    for data in (RecipePack.empty().to_bytes(), b'{"entries": []}'):
        assert PackSource(shelf().get(written(tmp_path, data))).propose((), 9) == ()


def test_what_followed_the_longest_agreement_is_looked_up() -> None:
    source = PromptSource([1, 2, 3, 50, 51, 9, 2, 3, 60, 61])
    for token in (1, 2):
        source.advance(token)
    assert list(source.propose((), 2)) == [3, 50]
    source.advance(3)
    assert list(source.propose((), 4)) == [50, 51, 9, 2]
    assert source.key == 3
    assert list(source.propose((7, 2, 3), 2)) == [50, 51] or list(source.propose((7, 2, 3), 2)) == [60, 61]
    assert source.key == 2


def test_the_answer_itself_is_looked_up_too() -> None:
    source = PromptSource([9])
    for token in (1, 2, 3, 4, 1, 2):
        source.advance(token)
    assert list(source.propose((), 3)) == [3, 4, 1]


def test_a_source_that_was_not_asked_before_knows_the_answer_all_the_same() -> None:
    late, early = PromptSource([1, 2, 3, 4, 5]), PromptSource([1, 2, 3, 4, 5])
    early.propose((), 1)
    for token in (7, 2, 3):
        late.advance(token)
        early.advance(token)
    assert list(late.propose((), 9)) == list(early.propose((), 9)) == [4, 5, 7, 2, 3]


@given(
    st.lists(st.integers(0, 4), max_size=60),
    st.lists(st.integers(0, 4), max_size=30),
    st.lists(st.integers(0, 4), max_size=5),
)
def test_a_proposal_follows_an_agreement_that_no_other_late_place_beats(
    prompt: list[int], answer: list[int], ahead: list[int]
) -> None:
    source = PromptSource(prompt)
    for token in answer:
        source.advance(token)
    run = list(source.propose(ahead, 4))
    text = [*prompt, *answer]
    whole = [*text[-MAX_MATCH:], *ahead][-MAX_MATCH:]
    if not run:
        pairs = set(itertools.pairwise(text[:-1]))
        assert len(whole) < 2 or (whole[-2], whole[-1]) not in pairs
        return
    places = [at for at in range(2, len(text)) if text[at : at + 4] == run]
    agreeing = [
        n for at in places for n in [source.key] if n <= at and text[at - n : at] == whole[-n:] and n <= len(whole)
    ]
    assert source.key >= 2
    assert agreeing


def test_a_log_tells_counts_by_recipe_and_shapes_and_no_text() -> None:
    logs = FeedbackLog()
    log = logs.of("tenant", "k" * 64, ONE)
    source = PackSource(PackIndex(ONE, TEXTS), log)
    log.count_run(1, 2, 1)
    log.count_run(1, 2, 2)
    for token in b"the secret plan":
        source.advance(token)
        source.propose((), 4)
    assert logs.drain() == []  # before an answer has ended
    log.count_answer(list(b"the secret plan"), learns=False)
    ((tenant, told),) = logs.drain()
    assert tenant == "tenant"
    assert (told.n_answers, told.n_tokens, told.pack_sha256) == (1, 15, "k" * 64)
    assert told.tried == [{"id": ONE.recipes[1].id, "tried": 4, "accepted": 3}]
    assert sum(row["n"] for row in told.missed) == 8
    assert told.learned == []
    assert "secret" not in str(told.to_json())
    assert logs.drain() == []


def test_two_tenants_with_one_pack_are_told_apart() -> None:
    logs = FeedbackLog()
    for tenant, n in (("a", 2), ("b", 3)):
        logs.of(tenant, "k", ONE).count_answer([1] * n, learns=False)
    assert sorted((tenant, told.n_tokens) for tenant, told in logs.drain()) == [("a", 2), ("b", 3)]


def test_answers_are_kept_only_of_who_opted_in_and_not_without_end() -> None:
    log = PackLog("k", ONE)
    log.count_answer([1, 2], learns=False)
    for _ in range(200):
        log.count_answer([3] * 5000, learns=True)
    for i in range(5000):
        log.count_miss(f"text d{i}")
    told = log.drain()
    assert told is not None
    assert len(told.learned) == 64
    assert {len(row["tokens"]) for row in told.learned} == {1024}
    assert len(told.missed) == 2000
