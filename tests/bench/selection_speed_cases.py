"""The shape in which the cases of the speed bench are written (`selection_speed`, `selection_speed_methods`).

A case is one way to do one job. `prepare` is not timed: it imports what it needs, converts the pool to the form that
the library asks for, and returns the call that is. Each call runs in a process of its own, on one BLAS thread.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Run = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """`rows` (n, d) float32, unit rows; `scores` (n,) float64, descending: canonical order, as `selection` hands it on.
    `k` = n / 3."""

    rows: NDArray[np.float32]
    scores: NDArray[np.float64]
    k: int

    @property
    def n(self) -> int:
        return len(self.rows)

    def domain_rows(self) -> NDArray[np.floating]:
        """As `select` gives them to its methods: float64 to 3,000 rows, float32 above."""
        return self.rows.astype(np.float64) if self.n <= 3_000 else self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`peer_of` names the case of ours that this one is compared with ("" for our own). `needs` is the module that must
    be importable, or the case is skipped by that name. The measured seconds are multiplied by `factor` (a loop of which
    three steps were run), which the table says. Above `max_n` the case is not run, and `beyond` says why."""

    table: str
    name: str
    prepare: Callable[[Pool], Run]
    peer_of: str = ""
    needs: str = ""
    min_n: int = 0
    max_n: int = 100_000
    beyond: str = ""
    factor: Callable[[Pool], float] = lambda pool: 1.0
