"""The runs that follow in an answer when its input has a word: learnt at the places where a pack and its copies know
nothing."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from backend.domain.recipes.copy_rule_lookup import RequestCopies
from backend.domain.recipes.copy_rules import MAX_CUE_CHARS, MAX_PLACE_CHARS, Copy, CopyKind
from backend.domain.recipes.lookup import CopyingCursor, PackIndex
from backend.domain.recipes.mining.copy_rule_learning import MAX_EXAMPLES, Pair
from backend.domain.recipes.mining.decision_lists import WHOLE, Example, decision_list
from backend.domain.recipes.mining.runs import whole_length


class UndraftedPosition(NamedTuple):
    """A place at which nothing was proposed: the input's words, what came, and how sure it is."""

    words: frozenset[str]
    run: tuple[int, ...]
    sure: tuple[int, ...]


def conditional_runs(
    pairs: Sequence[Pair],
    index: PackIndex,
    *,
    max_draft: int,
    min_support: int,
    min_agreement_ppm: int,
    end_ids: Sequence[int],
) -> Iterator[Copy]:
    """FOLLOWS_WORD recipes for an index that has copy recipes."""
    by_place = _undrafted_positions(pairs, index, max_draft=max_draft, end_ids=end_ids)
    texts = index.shapes.pieces.texts
    for place in sorted(by_place):
        there = by_place[place]
        there = there[:: -(-len(there) // MAX_EXAMPLES)]
        for cue, covered in _rules(there, min_support, min_agreement_ppm):
            run, agreed = _run(covered, max_draft, min_agreement_ppm, end_ids)
            run = run[: whole_length([texts[token] for token in run])]
            if run:
                text = b"".join(texts[token] for token in run).decode()
                yield Copy(
                    what=CopyKind.FOLLOWS_WORD,
                    place=place,
                    cue=cue,
                    run=run,
                    run_text=text,
                    support=len(covered),
                    agreed=agreed[len(run) - 1] // WHOLE,
                )


def _undrafted_positions(
    pairs: Sequence[Pair], index: PackIndex, *, max_draft: int, end_ids: Sequence[int]
) -> Mapping[str, list[UndraftedPosition]]:
    """Collect undrafted positions by place, in a walk over the answers as verification would walk them."""
    by_place: dict[str, list[UndraftedPosition]] = defaultdict(list)
    assert index.copies is not None
    for pair in pairs:
        tokens, request = pair.answer.tokens, RequestCopies(index.copies, pair.prompt)
        cursor, at = CopyingCursor(index, request), 0
        while at < len(tokens):
            draft = greedy_draft(cursor, max_draft, end_ids) if at else []
            n = next((i for i, (a, b) in enumerate(zip(draft, tokens[at:], strict=False)) if a != b), len(draft))
            for token in tokens[at : at + n]:
                cursor.advance(token)
            at += n
            if at < len(tokens):
                place = cursor.place if 0 < n == len(draft) or (at and not draft) else ""
                if place and len(place) <= MAX_PLACE_CHARS:
                    coming = slice(at, at + max_draft)
                    sure = tuple(WHOLE * agreed // pair.answer.n_samples for agreed in pair.answer.agreed[coming])
                    by_place[place].append(UndraftedPosition(request.words, tokens[coming], sure))
                cursor.advance(tokens[at])
                at += 1
    return by_place


def _rules(
    there: Sequence[UndraftedPosition], min_support: int, min_agreement_ppm: int
) -> Iterator[tuple[str, list[UndraftedPosition]]]:
    seen = Counter(word for one in there for word in one.words if len(word) <= MAX_CUE_CHARS)
    examples = []
    for one in there:
        cues = ["", *sorted(word for word in one.words if seen[word] >= min_support)]
        examples.append(Example(dict.fromkeys(cues, one.run[0]), one.sure[0]))
    for rule in decision_list(examples, min_support=min_support, min_agreement_ppm=min_agreement_ppm):
        yield rule.cue, [there[i] for i in rule.covered]


def _run(
    covered: Sequence[UndraftedPosition], most: int, min_agreement_ppm: int, end_ids: Sequence[int]
) -> tuple[tuple[int, ...], list[int]]:
    """The run that holds at enough of the places, and what agreed after each of its tokens."""
    run, agreed = list[int](), list[int]()
    going_on = list(covered)
    while len(run) < most and not (run and run[-1] in end_ids):
        weights: Counter[int] = Counter()
        going_on = [one for one in going_on if len(one.run) > len(run)]
        for one in going_on:
            weights[one.run[len(run)]] += min(one.sure[: len(run) + 1])
        if not weights:
            break
        token, weight = max(weights.items(), key=lambda item: (item[1], -item[0]))
        if weight * 1_000_000 < (len(covered) + 1) * WHOLE * min_agreement_ppm:
            break
        going_on = [one for one in going_on if one.run[len(run)] == token]
        run.append(token)
        agreed.append(weight)
    return tuple(run), agreed


def greedy_draft(cursor: CopyingCursor, most: int, end_ids: Collection[int] = ()) -> list[int]:
    """The runs that follow each other, at most `most` tokens, up to an end; `cursor` stays where it is."""
    draft = list(cursor.propose(most))
    ahead, at = None, 0
    while at < len(draft) < most and draft[-1] not in end_ids:
        ahead = ahead or cursor.copy()
        for token in draft[at:]:
            ahead.advance(token)
        at = len(draft)
        draft += ahead.propose(most - at)
    return draft
