"""The acceptance that a judge's verdicts have shown elsewhere, by kinship: where a tenant's curves begin.

An atom is a sigmoid of `calibration`'s grid and its weight among those of its kinship; FLAT_SHARE of the prior is
spread over the whole grid, so that two slices of verdicts can say otherwise. Fitted 2026-11-27 by

    python -m tests.bench.draft_priors --streams 84 --write

to 84 streams over five domains of CLINC150 and two parts of BANKING77 (docs/benchmarks/draft-pool.md).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from backend.domain.drafts.vocabulary import Kinship

FLAT_SHARE = 0.1


class Atom(NamedTuple):
    threshold: float
    width: float
    ceiling: float
    weight: float


ATOMS: Mapping[Kinship, tuple[Atom, ...]] = MappingProxyType(
    {
        Kinship.SLICE: (
            Atom(0.8, 0.24, 0.75, 0.394),
            Atom(0.8, 0.06, 0.75, 0.304),
            Atom(0.8, 0.24, 0.88, 0.116),
            Atom(0.8, 0.03, 0.55, 0.094),
            Atom(0.8, 0.24, 0.55, 0.061),
            Atom(0.8, 0.06, 0.88, 0.031),
        ),
        Kinship.LABEL: (
            Atom(0.8, 0.24, 0.97, 0.281),
            Atom(0.8, 0.24, 0.88, 0.244),
            Atom(0.8, 0.24, 0.75, 0.215),
            Atom(0.475, 0.24, 0.15, 0.131),
            Atom(0.8, 0.12, 0.97, 0.039),
            Atom(0.25, 0.24, 0.15, 0.038),
            Atom(0.675, 0.24, 0.15, 0.027),
            Atom(0.45, 0.24, 0.15, 0.025),
        ),
        Kinship.OTHER: (
            Atom(0.65, 0.24, 0.15, 0.385),
            Atom(0.35, 0.24, 0.15, 0.223),
            Atom(0.625, 0.24, 0.15, 0.123),
            Atom(0.675, 0.24, 0.15, 0.083),
            Atom(0.325, 0.24, 0.15, 0.046),
            Atom(0.675, 0.12, 0.55, 0.042),
            Atom(0.725, 0.24, 0.55, 0.041),
            Atom(0.375, 0.24, 0.75, 0.035),
            Atom(0.2, 0.24, 0.88, 0.023),
        ),
    }
)
