"""The way from observations to a pack: contexts counted, runs that hold kept, the most saving per byte first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from backend.domain.canonical import canonical_json
from backend.domain.recipes.copy_rules import Copy, Frame
from backend.domain.recipes.mining.calibrating import is_set_aside, least_support
from backend.domain.recipes.mining.choosing import Candidate, choose_recipes
from backend.domain.recipes.mining.copy_rule_choice import copies_size, with_copies
from backend.domain.recipes.mining.corpus import PPM, Corpus, Ints, corpus_of, grouped_by_literal, grouped_by_shape
from backend.domain.recipes.mining.runs import Groups, runs_of
from backend.domain.recipes.observing import Observed, agreed_runs
from backend.domain.recipes.options import PackOptions as PackOptions
from backend.domain.recipes.pack import BEGIN, MAX_SHAPE_CHARS, Recipe, RecipePack
from backend.domain.recipes.shapes import SHAPE_VERSION, is_keyed

_KEPT_WORTH = 2  # of a token that a kept recipe gave before, beside those of `choosing`
_SHAPE, _KEYED = 0, -1  # in place of a literal context's length
_Key = tuple[int, int]
Place = tuple[tuple[int, ...], str]
_HEAD_BYTES = 700  # of recipes.json without recipes: hashes, names, stats


def build_pack(
    observed: Sequence[Observed],
    token_texts: Sequence[bytes],
    *,
    tokenizer_sha256: str,
    base: str,
    options: PackOptions,
    kept: Sequence[Recipe] = (),
    kept_copies: Sequence[Copy] = (),
    frame: Frame | None = None,
    end_ids: Sequence[int] = (),
    missed: Mapping[str, int] | None = None,
) -> RecipePack:
    """`kept` and `kept_copies` are of an earlier pack or of the registry, with their support decayed; `missed` are the
    shapes at which production had no draft (`merging` has all). `frame` is where the input lies in the prompts; None:
    between what all of them share. Equal inputs in any order give equal bytes.
    recipes.json has at most `options.max_bytes`."""

    def plain(max_bytes: int) -> RecipePack:
        return _plain(
            observed,
            token_texts,
            tokenizer_sha256=tokenizer_sha256,
            base=base,
            options=replace(options, max_bytes=max_bytes),
            kept=kept,
            end_ids=end_ids,
            missed=missed,
        )

    pack = plain(options.max_bytes)
    if not options.copies:
        return pack
    pack = with_copies(pack, observed, token_texts, options=options, kept=kept_copies, frame=frame, end_ids=end_ids)
    if len(pack.to_bytes()) <= options.max_bytes:
        return pack
    less = plain(options.max_bytes - copies_size(pack.copies, pack.frame))
    return replace(less, copies=pack.copies, frame=pack.frame, stats=pack.stats | less.stats)


def _plain(
    observed: Sequence[Observed],
    token_texts: Sequence[bytes],
    *,
    tokenizer_sha256: str,
    base: str,
    options: PackOptions,
    kept: Sequence[Recipe],
    end_ids: Sequence[int],
    missed: Mapping[str, int] | None,
) -> RecipePack:
    corpus = corpus_of(observed, token_texts)
    counting = _Counting(corpus, token_texts, options, end_ids)
    support = counting.calibrate_support()
    levels, contexts = counting.levels(support)
    recipes: dict[_Key, Recipe] = {}
    for level, (groups, m) in enumerate(zip(levels, contexts, strict=True)):
        for group in (groups.lengths > 0).nonzero()[0].tolist():
            made = _recipe(corpus, groups, group, m, token_texts)
            if made is not None:
                recipes[level, group] = made
    recipes, more = _with_kept(recipes, kept)
    candidates = [
        Candidate(
            level=level, group=group, n_bytes=len(canonical_json(recipe.to_row())) + 1, more=more.get(recipe.place, 0)
        )
        for (level, group), recipe in recipes.items()
    ]
    room = options.max_bytes - _HEAD_BYTES - len(canonical_json(base))
    taken = choose_recipes(corpus, levels, candidates, max_bytes=room, missed=frozenset(missed or ()))
    of_pack = sorted((recipes[one.level, one.group] for one in taken), key=_frequency)
    return RecipePack(
        tokenizer_sha256=tokenizer_sha256,
        base=base,
        recipes=tuple(of_pack),
        shape_version=SHAPE_VERSION,
        max_draft=options.max_draft,
        stats=_stats(observed, len(candidates), of_pack) | {"least_support": support},
    )


class _Counting:
    """The kinds of contexts from the weakest, and what their places go on with."""

    def __init__(
        self, corpus: Corpus, token_texts: Sequence[bytes], options: PackOptions, end_ids: Sequence[int]
    ) -> None:
        self._corpus, self._texts, self._options, self._end_ids = corpus, token_texts, options, end_ids
        self._places: dict[int, Ints] = {}
        if options.shapes:
            for m in (_SHAPE, _KEYED):
                self._places[m] = grouped_by_shape(corpus, options.min_support, keyed=m == _KEYED)
        self._places |= sorted(grouped_by_literal(corpus, options.contexts, options.min_support).items())

    def levels(self, min_support: int) -> tuple[list[Groups], list[int]]:
        """The groups of each kind of contexts, and the contexts' length (_SHAPE, _KEYED for shapes)."""
        return [self._runs(of_place, min_support) for of_place in self._places.values()], list(self._places)

    def calibrate_support(self) -> int:
        """The support that a run needs on this corpus."""
        aside = is_set_aside(self._corpus)
        tried = [
            (self._runs(np.where(aside, -1, of_place), self._options.min_support), np.where(aside, of_place, -1))
            for of_place in self._places.values()
        ]
        return least_support(
            self._corpus,
            tried,
            min_support=self._options.min_support,
            min_agreement_ppm=self._options.min_agreement_ppm,
        )

    def _runs(self, of_place: Ints, min_support: int) -> Groups:
        return runs_of(
            self._corpus,
            of_place,
            self._texts,
            max_draft=self._options.max_draft,
            min_support=min_support,
            min_agreement_ppm=self._options.min_agreement_ppm,
            end_ids=self._end_ids,
        )


def _recipe(corpus: Corpus, groups: Groups, group: int, m: int, token_texts: Sequence[bytes]) -> Recipe | None:
    """None where its context begins or ends inside a character, or its shape is too long to be written."""
    first, n = int(groups.first[group]), int(groups.lengths[group])
    run = tuple(groups.runs[group, :n].tolist())
    after: tuple[int, ...] = tuple(corpus.tokens[first - m : first].tolist()) if m > 0 else ()
    state = int(corpus.states[first])
    shape = "" if after else (corpus.shapes.keyed_text(state) if m == _KEYED else corpus.shapes.text(state))
    after_text, run_text = _text(after, token_texts), _text(run, token_texts)
    if after_text is None or run_text is None or len(shape) > MAX_SHAPE_CHARS:
        return None
    return Recipe(
        after=after,
        shape=shape,
        run=run,
        after_text=after_text,
        run_text=run_text,
        support=int(groups.support[group]),
        agreed=int(groups.agreed[group, n - 1]) // PPM,
    )


def _text(tokens: Sequence[int], token_texts: Sequence[bytes]) -> str | None:
    try:
        return b"".join(token_texts[token] for token in tokens if token != BEGIN).decode()
    except UnicodeDecodeError:
        return None


def _with_kept(recipes: dict[_Key, Recipe], kept: Sequence[Recipe]) -> tuple[dict[_Key, Recipe], dict[Place, int]]:
    """The recipes with kept ones among them, and by place what the kept ones are worth. Where both know a place, equal
    runs add their counts; of different runs the one stays that was seen more often."""
    joined, more = dict(recipes), dict[Place, int]()
    key_of = {recipe.place: key for key, recipe in recipes.items()}
    for i, old in enumerate(sorted(kept, key=_frequency)):
        key = key_of.setdefault(old.place, (0, -1 - i))
        new = joined.get(key)
        if new is not None and new.run == old.run:
            joined[key] = replace(new, support=new.support + old.support, agreed=new.agreed + old.agreed)
        elif new is None or (old.agreed > new.agreed and key[1] < 0):
            joined[key] = old
        else:
            continue
        more[old.place] = more.get(old.place, 0) + _KEPT_WORTH * old.agreed * len(old.run)
    return joined, more


def _frequency(recipe: Recipe) -> tuple[Any, ...]:
    return -recipe.support, recipe.after, recipe.shape, recipe.run


def _stats(observed: Sequence[Observed], n_candidates: int, recipes: Sequence[Recipe]) -> dict[str, int]:
    return {
        "n_answers": len(observed),
        "n_tokens": sum(len(one.tokens) for one in observed),
        "n_samples": sum(one.n_samples for one in observed),
        "n_agreed_tokens": sum(end - begin for one in observed for begin, end in agreed_runs(one)),
        "n_candidates": n_candidates,
        "n_recipes": len(recipes),
        "n_literal": sum(bool(recipe.after) for recipe in recipes),
        "n_keyed": sum(not recipe.after and is_keyed(recipe.shape) for recipe in recipes),
    }
