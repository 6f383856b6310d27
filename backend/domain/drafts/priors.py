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
            Atom(0.8, 0.24, 0.75, 0.376),
            Atom(0.8, 0.06, 0.75, 0.17),
            Atom(0.8, 0.24, 0.88, 0.138),
            Atom(0.8, 0.03, 0.75, 0.062),
            Atom(0.8, 0.24, 0.55, 0.059),
            Atom(0.8, 0.06, 0.55, 0.055),
            Atom(0.8, 0.12, 0.75, 0.05),
            Atom(0.8, 0.12, 0.88, 0.041),
            Atom(0.8, 0.03, 0.88, 0.028),
            Atom(0.8, 0.015, 0.75, 0.021),
        ),
        Kinship.LABEL: (
            Atom(0.8, 0.24, 0.97, 0.313),
            Atom(0.8, 0.24, 0.88, 0.247),
            Atom(0.8, 0.24, 0.75, 0.23),
            Atom(0.475, 0.24, 0.15, 0.125),
            Atom(0.5, 0.24, 0.15, 0.046),
            Atom(0.8, 0.12, 0.97, 0.04),
        ),
        Kinship.OTHER: (
            Atom(0.8, 0.06, 0.35, 0.3),
            Atom(0.525, 0.24, 0.35, 0.189),
            Atom(0.625, 0.24, 0.55, 0.119),
            Atom(0.775, 0.24, 0.55, 0.118),
            Atom(0.8, 0.24, 0.35, 0.109),
            Atom(0.775, 0.06, 0.35, 0.057),
            Atom(0.7, 0.12, 0.88, 0.054),
            Atom(0.8, 0.24, 0.97, 0.029),
            Atom(0.6, 0.12, 0.88, 0.024),
        ),
    }
)
