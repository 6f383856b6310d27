"""The figures of a draft cache, as counts and sums by family, scope and strategy. Rates are derived where they are
shown (`shapes`)."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from backend.domain.drafts.judge_controls import BadRate
from backend.domain.drafts.vocabulary import Saving, Strategy
from backend.drafts.calibrations import measured_bad_rate
from backend.drafts.models import Calibration, Scope

BAND = 0.05  # of cosine distance


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The drafts that are stored: `n_drafts` the product's live drafts, `n_kept` rows that are there because an exact
    rule needs an unbiased sample. Tokens and cost are of the product's drafts, bytes of all rows."""

    n_drafts: int = 0
    n_kept: int = 0
    n_quarantined: int = 0
    n_sources: int = 0
    n_bytes: int = 0
    n_tokens: int = 0
    cost_microusd: int = 0
    newest_at: datetime | None = None

    def __add__(self, other: "Holdings") -> "Holdings":
        times = [at for at in (self.newest_at, other.newest_at) if at is not None]
        return Holdings(
            n_drafts=self.n_drafts + other.n_drafts,
            n_kept=self.n_kept + other.n_kept,
            n_quarantined=self.n_quarantined + other.n_quarantined,
            n_sources=self.n_sources + other.n_sources,
            n_bytes=self.n_bytes + other.n_bytes,
            n_tokens=self.n_tokens + other.n_tokens,
            cost_microusd=self.cost_microusd + other.cost_microusd,
            newest_at=max(times, default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The sum of look-ups. `n_shown` drafts were offered, `n_accepted` of them accepted, `n_reused` entered a pool;
    those that were written for the very same prompt, which nobody is asked about, are in all three."""

    arms: Counter[str] = field(default_factory=Counter)
    n_shown: int = 0
    n_accepted: int = 0
    n_reused: int = 0
    kept_tokens: Counter[str] = field(default_factory=Counter)
    saving: Saving = field(default_factory=Saving)

    @property
    def n_lookups(self) -> int:
        return self.arms.total()

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            arms=self.arms + other.arms,
            n_shown=self.n_shown + other.n_shown,
            n_accepted=self.n_accepted + other.n_accepted,
            n_reused=self.n_reused + other.n_reused,
            kept_tokens=self.kept_tokens + other.kept_tokens,
            saving=self.saving + other.saving,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Verdicts between two distances: from `distance` on, `BAND` wide."""

    distance: float
    n_shown: int
    n_accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The slices of one side of the held-back comparison. Means are over candidates; None without any (score: without
    any that has one)."""

    n_slices: int
    n_candidates: int
    cost_per_candidate_microusd: float | None
    mean_score: float | None


@dataclass(frozen=True, kw_only=True)  # no slots: one value is cached
class StrategyStats:
    """`verified` has the verdicts, nearest first. `calibration` is one without observations before the first use."""

    strategy: str
    tally: Tally
    verified: tuple[Band, ...]
    calibration: Calibration

    @cached_property
    def bad_rate(self) -> BadRate:
        return measured_bad_rate(self.calibration)  # some milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeStats:
    """`tally` sums the strategies and what had none."""

    scope: Scope
    holdings: Holdings
    tally: Tally
    strategies: tuple[StrategyStats, ...]

    @property
    def verified(self) -> tuple[Band, ...]:
        """The verdicts of every strategy that asks: a repeat is accepted always."""
        return tuple(band for one in self.strategies if one.strategy != Strategy.REPEAT for band in one.verified)


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyStats:
    """`tally` is of slices, `labels` of label prompts that the teacher had answered before. `held_back` and
    `not_held_back` are None until both have slices."""

    family: str
    holdings: Holdings
    tally: Tally
    labels: Tally
    scopes: tuple[ScopeStats, ...]
    held_back: Side | None
    not_held_back: Side | None

    @property
    def verified(self) -> tuple[Band, ...]:
        return tuple(band for scope in self.scopes for band in scope.verified)
