"""Copy recipes for a pack: learnt on top of what it knows without inputs, as many as pay for their bytes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from backend.domain.canonical import canonical_json
from backend.domain.recipes.copy_rules import COPY_COLUMNS, MAX_COPIES, Copy, CopyKind, Frame
from backend.domain.recipes.inputs import frame_of
from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.mining.conditional_runs import conditional_runs
from backend.domain.recipes.mining.copy_rule_learning import copied_values, pairs_of
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.options import PackOptions
from backend.domain.recipes.pack import RecipePack

_SHARE = 2  # copies take at most one part in two of a pack
_OF_COPIED = 4  # tokens that a beginning saves
_ORDER = {kind: i for i, kind in enumerate(CopyKind)}


def with_copies(
    pack: RecipePack,
    observed: Sequence[Observed],
    token_texts: Sequence[bytes],
    *,
    options: PackOptions,
    kept: Sequence[Copy] = (),
    frame: Frame | None = None,
    end_ids: Sequence[int] = (),
) -> RecipePack:
    """`pack` with what is learnt of the prompts of `observed`; with `kept` alone where none has a prompt."""
    index = PackIndex(pack, token_texts)
    frame = frame_of([one.prompt for one in observed if one.prompt]) if frame is None else frame
    pairs = pairs_of(observed, token_texts, frame)
    limits = {"min_support": options.min_support, "min_agreement_ppm": options.min_agreement_ppm}
    learnt = copied_values(pairs, index.shapes, **limits)
    if learnt:
        index = PackIndex(replace(pack, copies=tuple(learnt), frame=frame), token_texts, shapes=index.shapes)
        learnt += conditional_runs(pairs, index, max_draft=pack.max_draft, end_ids=end_ids, **limits)
    copies = within(_join(learnt, kept), options.max_bytes // _SHARE - _frame_size(frame))
    if not copies:
        return pack
    stats = {"n_copies": len(copies), "n_pairs": len(pairs)}
    return replace(pack, copies=tuple(copies), frame=frame, stats=pack.stats | stats)


def within(copies: Sequence[Copy], max_bytes: int) -> list[Copy]:
    """Keep of each place's list so many from the front that all have room; what saves least for its bytes leaves
    first."""
    ordered = sorted(copies, key=_list_of)  # stable: within a place the order of trial stays
    lists = [list(rows) for _, rows in groupby(ordered, key=_list_of)]
    size, n = sum(map(_n_bytes, copies)), len(copies)
    while n and (size > max_bytes or n > MAX_COPIES):
        last = min((rows for rows in lists if rows), key=lambda rows: _count_saved(rows[-1]) / _n_bytes(rows[-1]))
        size -= _n_bytes(last.pop())
        n -= 1
    return [one for rows in lists for one in rows]


def copies_size(copies: Sequence[Copy], frame: Frame) -> int:
    """Bytes of recipes.json."""
    return sum(map(_n_bytes, copies)) + _frame_size(frame) if copies else 0


def _join(learnt: Sequence[Copy], kept: Sequence[Copy]) -> list[Copy]:
    """Kept ones stand behind those that were learnt for their place now, where these leave anything to say; the same
    one adds its counts."""
    old = {one.asked_for: one for one in kept}
    joined = []
    for one in learnt:
        before = old.pop(one.asked_for, None)
        if before is not None and before.id == one.id:
            one = replace(one, support=one.support + before.support, agreed=one.agreed + before.agreed)
        joined.append(one)
    always = {one.place for one in learnt if not one.cue}
    return joined + [one for one in old.values() if one.place not in always]


def _list_of(one: Copy) -> tuple[int, str]:
    return _ORDER[one.what], one.place


def _count_saved(one: Copy) -> int:
    if one.what is CopyKind.FOLLOWS_WORD:
        return one.agreed * len(one.run)
    return one.agreed * (_OF_COPIED if one.what is CopyKind.BEGINS else 1)


def _n_bytes(one: Copy) -> int:
    return len(canonical_json(one.to_row())) + 1


def _frame_size(frame: Frame) -> int:
    return 100 + len(canonical_json([list(frame[0]), list(frame[1]), list(COPY_COLUMNS)]))
