"""The acceptance that a judge's verdicts have shown elsewhere, by kinship: where a tenant's curves begin.

An atom is a sigmoid of `calibration`'s grid and its weight among those of its kinship; FLAT_SHARE of the prior is
spread over the whole grid. Set by hand until they are fitted.
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
        Kinship.SLICE: (Atom(0.8, 0.03, 0.97, 0.6), Atom(0.8, 0.06, 0.88, 0.25), Atom(0.8, 0.24, 0.55, 0.15)),
        Kinship.LABEL: (Atom(0.6, 0.12, 0.88, 0.6), Atom(0.4, 0.12, 0.55, 0.25), Atom(0.2, 0.12, 0.35, 0.15)),
        Kinship.OTHER: (Atom(0.35, 0.12, 0.75, 0.4), Atom(0.2, 0.12, 0.35, 0.6)),
    }
)
