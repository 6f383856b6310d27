"""A trial as its compile's evaluation step keeps it: what a resumed process goes on from. One record a trial, with the
ids of its runner jobs, the digest of what was measured and what came of it; as JSON in `StepRun.trials`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.domain.planning.trials import Trial, TrialOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """`jobs` are runner jobs by role: distill, evaluate, recipes, and pairs, the first training where distill is a
    second one, on the student's own answers. `evals` are of a trial that was measured; `why_not` says why one was not.
    `has_recipes`: its pack is made, or will not be."""

    trial: Trial
    jobs: Mapping[str, str]
    outcome: TrialOutcome | None = None
    evals: str = ""
    why_not: str = ""
    has_recipes: bool = False

    ROLES = ("pairs", "distill", "evaluate", "recipes")

    @property
    def first_failed(self) -> str | None:
        """The floor that its model misses first."""
        return None if self.outcome is None else self.outcome.first_failed

    @property
    def accuracy_ppm(self) -> int:
        return 0 if self.outcome is None else self.outcome.accuracy_ppm

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"trial": self.trial.to_json(), **self.jobs}
        if self.outcome is not None:
            value["outcome"] = _plain(self.outcome)
        if self.has_recipes:
            value["recipes_done"] = True
        return value | self._results()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TrialRecord":
        return cls(
            trial=Trial.from_json(value["trial"]),
            jobs={role: value[role] for role in cls.ROLES if value.get(role)},
            outcome=_outcome(value),
            evals=value.get("evals", ""),
            why_not=value.get("why_not", ""),
            has_recipes="recipes_done" in value,
        )

    def summary(self) -> dict[str, Any]:
        """The trial as receipts and the API tell it."""
        outcome = {} if self.outcome is None else _plain(self.outcome)
        outcome.pop("trial", None)
        return outcome | self.trial.to_json() | self._results()

    def _results(self) -> dict[str, Any]:
        if self.evals:
            return {"evals": self.evals, "accuracy_ppm": self.accuracy_ppm, "first_failed": self.first_failed}
        return {"why_not": self.why_not} if self.why_not else {}


def _outcome(value: Mapping[str, Any]) -> TrialOutcome | None:
    """The outcome with the missed floor and the accuracy, which a record keeps beside it."""
    outcome = value.get("outcome")
    beside = {"first_failed": value.get("first_failed"), "accuracy_ppm": value.get("accuracy_ppm", 0)}
    return TrialOutcome.from_json(outcome | beside) if outcome else None


def _plain(outcome: TrialOutcome) -> dict[str, Any]:
    """The outcome without what a record keeps beside it, and without the student of what has none."""
    value = outcome.to_json()
    del value["first_failed"], value["accuracy_ppm"]
    if not outcome.student:
        del value["student"], value["competition"]
    return value
