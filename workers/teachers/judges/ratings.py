"""The batches of candidates that a judge rates: under random ids, in random order, beside a text that is worth nothing.

Position and company move a judge's ratings. The order is random and is another one in each batch, so that what it does
falls on candidates by chance and on none because of when it was written; it does not go away. A candidate may try to
talk the judge into something. Each batch therefore holds a control, a line of random letters: a judge that rates it in
the upper half of the scale, or leaves it out, is confused or does what a text says, and no rating of that batch counts.
Its candidates are asked about once more, each alone with another control, so that one bad candidate takes none down
with it. What the control does not show: a candidate that praises itself and leaves the others alone.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.answers.rewards import MOST_RATING
from backend.domain.spec.parsing import SliceSpec, Spec
from workers.teachers.judges.batches import IDS
from workers.teachers.prompts.reward import rating_request, read_ratings
from workers.teachers.protocol import CompletionRequest

MAX_CALL_CHARS = 16_000  # of candidates in one call, some 4,000 tokens beside the prompt
_CONSONANTS = "bcdfghjklmnpqrstvwxz"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingBatch:
    """The texts of one call by the ids that they are shown under; `control` is the id of the worthless one, `places`
    the place of each candidate in the caller's list by its id."""

    shown: Mapping[str, str]
    control: str
    places: Mapping[str, int]

    def request(self, spec: Spec, slice_: SliceSpec, *, seed: int | None, thought_of: Spec) -> CompletionRequest:
        return rating_request(spec, slice_, self.shown, seed=seed, thought_of=thought_of)

    def read(self, choice: Mapping[str, Any]) -> dict[int, float]:
        """The ratings by place; none of a batch whose control is not found worthless."""
        ratings = read_ratings(choice, list(self.shown))
        if ratings.get(self.control, MOST_RATING) > MOST_RATING / 2:
            return {}
        return {place: ratings[id_] for id_, place in self.places.items() if id_ in ratings}

    def is_misled(self, choice: Mapping[str, Any]) -> bool:
        """Tell whether the control is rated in the upper half of the scale."""
        return read_ratings(choice, list(self.shown)).get(self.control, 0) > MOST_RATING / 2


def rating_batch(texts: Sequence[str], rng: random.Random) -> RatingBatch:
    """The texts with a control, in random order under random ids."""
    ids = rng.sample(IDS, len(texts) + 1)
    control, own = ids[0], ids[1:]
    shown = [(control, _nonsense(rng)), *zip(own, texts, strict=True)]
    return RatingBatch(
        shown=dict(rng.sample(shown, len(shown))),
        control=control,
        places={id_: place for place, id_ in enumerate(own)},
    )


def groups_within(texts: Sequence[str], per_call: int) -> list[list[int]]:
    """The places of `texts` in groups of at most `per_call` and MAX_CALL_CHARS, in their order; a longer text is a
    group of its own."""
    groups: list[list[int]] = []
    room = 0
    for place, text in enumerate(texts):
        if not groups or len(groups[-1]) == per_call or len(text) > room:
            groups.append([])
            room = MAX_CALL_CHARS
        groups[-1].append(place)
        room -= len(text)
    return groups


def _nonsense(rng: random.Random) -> str:
    words = ("".join(rng.choices(_CONSONANTS, k=rng.randint(2, 8))) for _ in range(rng.randint(4, 9)))
    return " ".join(words)
