"""The counted entries that an epoch may hold: those of k parties and a secret margin more.

A party is a tenant, or all tenants that share people (who counts them is the database: `migrations/registry`). With a
bare threshold, somebody with k - 1 workspaces plants a guess in each of them and learns, when it is released, that
someone else has it too. Here each guess has a threshold of its own between k and k + margin, drawn once from a secret
and always the same, so that the release says little: the odds that a party has the entry change by a factor of e at
most, but for the one draw in some 40 that is k itself (margin 6).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from backend.domain.recipes.registry.epochs import MAX_ENTRIES, Entry
from backend.domain.recipes.registry.structural import structural


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    entry: Entry
    n_parties: int


def choose_released(
    counted: Iterable[Counted], *, k: int, margin: int, draw: Callable[[str], bytes], most: int = MAX_ENTRIES
) -> list[Entry]:
    """The entries of an epoch, those of the most parties first where there are more than `most`. `draw` gives at least
    8 bytes that only this installation can know, the same for the same text. Entries with the same names of members
    share their draw: variations of one guess are no second guess."""
    rows = []
    for row in counted:
        kept = structural(row.entry.shape, row.entry.run)
        if kept is None or kept.run != row.entry.run:
            continue
        guess = " ".join(sorted(set(kept.words))) or f"{row.entry.shape}\n{row.entry.run}"
        if row.n_parties >= k + margin_of(draw(guess), margin):
            rows.append(row)
    rows.sort(key=lambda row: (-row.n_parties, row.entry))
    return [row.entry for row in rows[:most]]


def margin_of(drawn: bytes, most: int) -> int:
    """0 to `most`, by the two-sided geometric distribution around its middle: g has the weight e^-|g - most / 2|, so
    that neighbours differ by a factor of e at most."""
    weights = [math.exp(-abs(g - most / 2)) for g in range(most + 1)]
    place = int.from_bytes(drawn[:8], "big") / 2**64 * sum(weights)
    for g, weight in enumerate(weights):
        place -= weight
        if place < 0:
            return g
    return most
