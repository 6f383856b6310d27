"""The account of one step: who was asked, what was fed, what held, what it took."""

from dataclasses import dataclass, field

from gpu_runners.speculation.controller import Controller


@dataclass(slots=True)
class Share:
    """One controller's part of a step."""

    n_rows: int = 0
    is_asked: bool = False
    n_asked: int = 0
    n_fed: int = 0
    n_accepted: int = 0
    asked_s: float = 0.0
    model_s: float = 0.0

    def add(self, n_fed: int, n_accepted: int) -> None:
        self.n_fed += n_fed
        self.n_accepted += n_accepted


@dataclass(slots=True)
class StepBook:
    """One step's account. `noted` is (rows, drafted tokens, seconds) where it was timed."""

    n_rows: int = 0
    n_asked: int = 0
    n_kept: int = 0
    making_s: float = 0.0
    noted: tuple[int, int, float] | None = None
    shares: dict[Controller, Share] = field(default_factory=dict)

    def of(self, controller: Controller) -> Share:
        share = self.shares.get(controller)
        if share is None:
            share = self.shares[controller] = Share()
        return share
