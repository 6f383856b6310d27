"""The ways to more accuracy that are a customer's to take after a failed gate, in the words of the spec's fields."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """`is_causal`: a causal base was trained, whose options stand under train.causal. `ranks` were tried already.
    `has_slices`: the teacher writes candidates; without slices the captures are the pool. `is_frozen`: the model is a
    head on the frozen encoder, which has no rank."""

    is_causal: bool = False
    ranks: tuple[int, ...] = ()
    has_slices: bool = True
    is_frozen: bool = False

    @property
    def options(self) -> str:
        """The part of the spec that has the options of what was trained."""
        return "train.causal" if self.is_causal else "train"

    @property
    def data(self) -> str:
        return "raise sampling.n_candidates by half" if self.has_slices else "add captures"

    @property
    def rank(self) -> str:
        if self.is_frozen:
            return "say train.student: adapter"
        if len(set(self.ranks)) > 1:
            return f"set {self.options}.rank above {max(self.ranks)} (up to there it was tried)"
        return f"double {self.options}.rank"

    def changes(self) -> str:
        """The changes alone, the cheapest first."""
        if self.is_causal:
            return f"{self.data}, {self.rank}, or take a larger train.causal.base"
        return f"{self.data}, or {self.rank}"

    def __str__(self) -> str:
        """The changes with what each costs."""
        return f"{self.changes()}; {'each' if self.is_causal else 'either'} costs one more compile and no new gold"
