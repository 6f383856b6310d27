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
            Atom(0.8, 0.24, 0.75, 0.372),
            Atom(0.8, 0.06, 0.75, 0.288),
            Atom(0.8, 0.24, 0.88, 0.115),
            Atom(0.8, 0.03, 0.55, 0.087),
            Atom(0.8, 0.24, 0.55, 0.074),
            Atom(0.8, 0.06, 0.88, 0.064),
        ),
        Kinship.LABEL: (
            Atom(0.8, 0.24, 0.97, 0.264),
            Atom(0.8, 0.24, 0.88, 0.225),
            Atom(0.8, 0.24, 0.75, 0.206),
            Atom(0.475, 0.24, 0.15, 0.142),
            Atom(0.25, 0.24, 0.15, 0.037),
            Atom(0.8, 0.12, 0.97, 0.036),
            Atom(0.675, 0.24, 0.15, 0.035),
            Atom(0.8, 0.03, 0.75, 0.029),
            Atom(0.8, 0.03, 0.55, 0.026),
        ),
        Kinship.OTHER: (
            Atom(0.65, 0.24, 0.15, 0.537),
            Atom(0.35, 0.24, 0.15, 0.271),
            Atom(0.675, 0.12, 0.55, 0.07),
            Atom(0.375, 0.24, 0.75, 0.038),
            Atom(0.725, 0.24, 0.55, 0.036),
            Atom(0.2, 0.24, 0.88, 0.025),
            Atom(0.8, 0.24, 0.75, 0.024),
        ),
    }
)
