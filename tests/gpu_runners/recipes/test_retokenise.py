"""Packs in the tokens of another engine: the same texts in other ids."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.recipes.building import PackOptions, build_pack
from backend.domain.recipes.copies import Copy, CopyKind, Frame
from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import BEGIN, Recipe, RecipePack, read_pack
from backend.domain.recipes.replay import Replayed, replay
from backend.domain.recipes.shapes import SHAPE_VERSION
from gpu_runners.causal.base import CausalBase, open_causal_base
from gpu_runners.recipes.retokenise import retokenised
from gpu_runners.recipes.tokens import token_texts
from tests.gpu_runners.small_base import make_base
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401


@pytest.fixture(scope="module")
def tiny(tiny_bases: Path) -> CausalBase:  # noqa: F811
    return open_causal_base(TINY, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    """Another vocabulary, cut into words by other rules."""
    return make_base(tmp_path_factory.mktemp("bases") / "other")


def encoder(base: CausalBase) -> Callable[[str], list[int]]:
    return lambda text: base.tokenizer(text, add_special_tokens=False)["input_ids"]


def answers(n: int, *, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [
        json.dumps(
            {
                "intent": rng.choice(("book a table", "cancel", "ask for the price")),
                "city": rng.choice(("Zürich", "Köln", "北京", "Lima", "Oslo")),
                "people": rng.randint(1, 30),
                "outside": rng.random() < 0.5,
            },
            ensure_ascii=False,
        )
        for _ in range(n)
    ]


def pack_of(base: CausalBase, texts: Sequence[str]) -> RecipePack:
    encode = encoder(base)
    observed = [
        Observed(tokens=(*encode(text), base.eos_ids[0]), agreed=(1,) * (len(encode(text)) + 1), n_samples=1)
        for text in texts
    ]
    return build_pack(
        observed,
        token_texts(base),
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=PackOptions(),
        end_ids=base.eos_ids,
    )


def in_tokens_of(base: CausalBase, pack: RecipePack, source: CausalBase, *, frame: Frame | None = None) -> RecipePack:
    return retokenised(
        pack,
        encoder(base),
        token_texts(base),
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        end_ids=source.eos_ids,
        end_id=base.eos_ids[0],
        frame=frame,
    )


def replayed(base: CausalBase, pack: RecipePack, texts: Sequence[str]) -> Replayed:
    index = PackIndex(pack, token_texts(base))
    tokens = [[*encoder(base)(text), base.eos_ids[0]] for text in texts]
    return replay(tokens, lambda _: index.cursor(), max_draft=16)


def test_a_pack_of_one_tokenizer_drafts_in_the_tokens_of_another(tiny: CausalBase, other: CausalBase) -> None:
    """Not as well as one that was made for them: half of its saving at least."""
    seen, unseen = answers(150, seed=1), answers(60, seed=2)
    moved = read_pack(
        in_tokens_of(other, pack_of(tiny, seen), tiny).to_bytes(), tokenizer_sha256=other.tokenizer_sha256
    )
    there, native = replayed(other, moved, unseen), replayed(other, pack_of(other, seen), unseen)
    print(f"moved {there}, native {native}")
    assert there.n_tokens == native.n_tokens
    assert there.n_accepted > native.n_accepted / 2
    assert there.n_accepted > 0.85 * there.n_drafted
    assert moved.stats["before_retokenising"] >= len(moved.recipes) > 0


def test_in_its_own_tokens_a_pack_stays_what_it_was(tiny: CausalBase) -> None:
    pack = pack_of(tiny, answers(150, seed=1))
    assert in_tokens_of(tiny, pack, tiny).recipes == pack.recipes


def test_copy_recipes_keep_their_texts_where_the_frame_of_the_new_tokens_is_known(
    tiny: CausalBase, other: CausalBase
) -> None:
    run = tuple(encoder(tiny)('Lima", "'))
    begins = Copy(what=CopyKind.BEGINS, place='text "city"', cue="first U", support=9, agreed=9)
    says = Copy(what=CopyKind.SAYS, place="k", cue="", run=run, run_text='Lima", "', support=9, agreed=9)
    pack = replace(pack_of(tiny, answers(150, seed=1)), copies=(begins, says), frame=((7,), (8,)))
    assert in_tokens_of(other, pack, tiny).copies == ()
    moved = in_tokens_of(other, pack, tiny, frame=((1, 2), (3,)))
    assert read_pack(moved.to_bytes()).frame == ((1, 2), (3,))
    assert moved.copies[0] == begins
    texts = token_texts(other)
    said = b"".join(texts[token] for token in moved.copies[1].run).decode()
    assert said == moved.copies[1].run_text
    assert 'Lima", "'.startswith(said)


def test_each_recipe_says_a_part_of_what_it_said(tiny: CausalBase, other: CausalBase) -> None:
    pack, texts = pack_of(tiny, answers(150, seed=1)), token_texts(other)
    whole = {recipe.after_text + recipe.run_text for recipe in pack.recipes}
    moved = in_tokens_of(other, pack, tiny)
    assert moved.recipes
    for recipe in moved.recipes:
        assert b"".join(texts[token] for token in recipe.run) == recipe.run_text.encode()
        assert b"".join(texts[token] for token in recipe.after if token != BEGIN) == recipe.after_text.encode()
        assert any(recipe.after_text + recipe.run_text in text for text in whole)


def one_recipe(*, after: tuple[int, ...], run: tuple[int, ...], after_text: str, run_text: str) -> RecipePack:
    recipe = Recipe(after=after, shape="", run=run, after_text=after_text, run_text=run_text, support=5, agreed=5)
    return RecipePack(tokenizer_sha256="t" * 64, base="small", recipes=(recipe,), shape_version=SHAPE_VERSION)


PAIRS = {text: i for i, text in enumerate(("ab", "d1", "a", "b", "c", " ", "d", "\n", '"', "}", "1", "<end>"))}


def in_pairs(text: str) -> list[int]:
    """The longest token first."""
    ids, at = [], 0
    while at < len(text):
        token = text[at : at + 2] if text[at : at + 2] in PAIRS else text[at]
        ids.append(PAIRS[token])
        at += len(token)
    return ids


def in_pairs_pack(pack: RecipePack, end_ids: tuple[int, ...] = ()) -> list[Recipe]:
    texts = [text.encode() for text in PAIRS]
    moved = retokenised(
        pack, in_pairs, texts, tokenizer_sha256="p" * 64, base="pairs", end_ids=end_ids, end_id=PAIRS["<end>"]
    )
    return list(moved.recipes)


def test_a_run_begins_before_the_boundary_that_its_first_token_crosses() -> None:
    (recipe,) = in_pairs_pack(one_recipe(after=(1, 2), run=(3, 4), after_text="da", run_text="bc"))
    assert (recipe.after_text, recipe.run_text) == ("d", "abc")


def test_of_an_end_that_depends_on_what_follows_nothing_is_said() -> None:
    """A last "d" may be half of "d1"; a first "b" may be half of "ab", and mostly is not."""
    (recipe,) = in_pairs_pack(one_recipe(after=(1, 2), run=(3,), after_text="bc", run_text="cd"))
    assert (recipe.after_text, recipe.run_text) == ("bc", "c")
    (begun,) = in_pairs_pack(one_recipe(after=(BEGIN, 1), run=(3,), after_text="b", run_text="d"))
    assert begun.after == (BEGIN, PAIRS["b"])


def test_an_end_stays_an_end() -> None:
    (recipe,) = in_pairs_pack(one_recipe(after=(1,), run=(3, 99), after_text="d", run_text="da"), end_ids=(99,))
    assert recipe.run == (PAIRS["d"], PAIRS["a"], PAIRS["<end>"])
    (ended,) = in_pairs_pack(one_recipe(after=(1,), run=(99,), after_text="d", run_text=""), end_ids=(99,))
    assert (ended.after, ended.run, ended.run_text) == ((PAIRS["d"],), (PAIRS["<end>"],), "")


def test_a_tokenizer_that_rewrites_texts_gets_no_recipes(tiny: CausalBase) -> None:
    pack = pack_of(tiny, answers(50, seed=1))
    encode = encoder(tiny)
    texts = token_texts(tiny)
    lowered = retokenised(
        pack, lambda text: encode(text.lower()), texts, tokenizer_sha256="l" * 64, base="lower", end_ids=tiny.eos_ids
    )
    assert all(not any(map(str.isupper, recipe.run_text)) for recipe in lowered.recipes)
    with_space = retokenised(
        pack, lambda text: encode(" " + text), texts, tokenizer_sha256="s" * 64, base="space", end_ids=tiny.eos_ids
    )
    again = in_tokens_of(tiny, replace(pack), tiny)
    assert {(r.after_text, r.run_text) for r in with_space.recipes} <= {
        (r.after_text, r.run_text) for r in again.recipes
    }
