"""The rate at which drafted tokens are taken: by source, and by recipe (or length of match) shrunk towards its source.

A drafted token is the model's choice or it is not, whether it was fed to the model or only remembered and compared with
what came. So what was not drafted is scored as well, and a source that was stopped is known to be good again at no cost
in forward passes.
"""

from dataclasses import dataclass

from gpu_runners.models.protocol import DraftKind

MUTED_BELOW = 0.9  # of a recipe's tokens
_PRIOR = {DraftKind.PACK: 0.5, DraftKind.SCHEMA: 0.75, DraftKind.PROMPT: 0.3, DraftKind.MODEL: 0.5}
_PRIOR_WEIGHT = 2.0
_SOURCE_WEIGHT = 6.0  # tokens of a recipe's own that outweigh its source
_RECIPE_TRUST = 10.0  # tokens that a recipe that nothing is known of counts as accepted
_REMEMBERED = 400.0  # tokens; then both counts halve, so that what changed is noticed


@dataclass(slots=True)
class Tally:
    """Tokens: `drafted`, the `accepted` of them, and `reached`: those whose forerunners were all accepted."""

    drafted: float = 0.0
    reached: float = 0.0
    accepted: float = 0.0

    def add(self, drafted: int, accepted: int) -> None:
        self.drafted += drafted
        self.reached += accepted + (accepted < drafted)
        self.accepted += accepted
        if self.drafted > _REMEMBERED:
            self.drafted, self.reached, self.accepted = self.drafted / 2, self.reached / 2, self.accepted / 2


class Acceptance:
    """The acceptance of one pack's requests."""

    def __init__(self) -> None:
        self._kinds = {kind: Tally() for kind in DraftKind}
        self._keys: dict[tuple[DraftKind, int], Tally] = {}

    def note(self, kind: DraftKind, key: int, drafted: int, accepted: int) -> None:
        """Count one run of a source: `drafted` tokens were there to be compared, the first `accepted` of them held."""
        self._kinds[kind].add(drafted, accepted)
        tally = self._keys.get((kind, key))
        if tally is None:
            tally = self._keys[kind, key] = Tally()
        tally.add(drafted, accepted)

    def rate(self, kind: DraftKind, key: int) -> float:
        """The probability that one more token of such a run is accepted after those before it were."""
        own = self._keys.get((kind, key))
        of_kind = self.of_kind(kind)
        if own is None:
            return of_kind
        return (own.accepted + _SOURCE_WEIGHT * of_kind) / (own.reached + _SOURCE_WEIGHT)

    def of_kind(self, kind: DraftKind) -> float:
        tally = self._kinds[kind]
        return (tally.accepted + _PRIOR_WEIGHT * _PRIOR[kind]) / (tally.reached + _PRIOR_WEIGHT)

    @property
    def n_known(self) -> float:
        """Drafted tokens that were compared with what came, of all sources."""
        return sum(tally.reached for tally in self._kinds.values())

    def is_muted(self, recipe: int) -> bool:
        """Say whether less than 90 % of a recipe's drafted tokens hold. One that never failed is not; a failure weighs
        less the more it has to its credit."""
        tally = self._keys.get((DraftKind.PACK, recipe))
        if tally is None or tally.drafted == tally.accepted:
            return False
        return tally.accepted + _RECIPE_TRUST < MUTED_BELOW * (tally.drafted + _RECIPE_TRUST)
