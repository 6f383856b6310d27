"""The linkage criteria: what the distance between two clusters is."""

from enum import StrEnum


class Linkage(StrEnum):
    """AVERAGE: the mean distance of members. COMPLETE: the largest. WARD: what joining adds to the variance."""

    AVERAGE = "average"
    COMPLETE = "complete"
    WARD = "ward"
