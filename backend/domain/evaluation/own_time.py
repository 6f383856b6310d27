"""The own time of a model: what its answers cost of a processor, beside what a fixed reference workload cost in the
same moments. A slower processor, a neighbour on the same core or a busy runner lengthen both, and their ratio stays.

A label task is measured by the answer, a json or text task by the token that it answers with. This module reckons; a
runner measures (`gpu_runners.jobs.own_time`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from backend.domain.errors import InvalidInput

REFERENCE_NS = 4_000_000  # what the reference workload takes on the processor that all own times are told for
PPM = 1_000_000


class Unit(StrEnum):
    """The thing whose time is scored."""

    ANSWER = "answer"
    TOKEN = "token"


class Clock(StrEnum):
    """The clock of a measurement: the process's time on a CPU; time of a device between two synchronisations; wall
    time, of runners from before own times were measured."""

    CPU = "cpu"
    DEVICE = "device"
    WALL = "wall"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTime:
    """`measured_ns` is the time of one unit, `reference_ns` that of the reference workload in the same moments (0: none
    ran, and the time stands as it was measured). `units_milli`: thousandths of a unit that an answer has on average."""

    unit: Unit
    clock: Clock
    measured_ns: int
    reference_ns: int
    units_milli: int

    def __post_init__(self) -> None:
        if min(self.measured_ns, self.reference_ns, self.units_milli) < 0:
            raise InvalidInput("An own time is made of numbers of 0 or more.")

    @property
    def own_us(self) -> int:
        """The time of one unit on the reference processor, in microseconds, rounded down: 9 ms beside a reference of
        6 ms are 6,000."""
        if not self.reference_ns:
            return self.measured_ns // 1000
        return self.measured_ns * REFERENCE_NS // (self.reference_ns * 1000)

    @property
    def answer_us(self) -> int:
        """The own time of an average answer, in microseconds."""
        return self.own_us * self.units_milli // 1000

    def at_pace(self, pace_ppm: int) -> Self:
        """The same with answers that take `pace_ppm` millionths of their time."""
        return replace(self, measured_ns=self.measured_ns * pace_ppm // PPM)

    def to_json(self) -> dict[str, Any]:
        return {"own_us": self.own_us} | {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        fields = {name: value[name] for name in cls.__slots__}
        return cls(**fields | {"unit": Unit(value["unit"]), "clock": Clock(value["clock"])})


def own_time(
    unit: Unit, clock: Clock, answers_ns: Sequence[int], units: Sequence[int], *, reference_ns: int
) -> OwnTime:
    """The own time of a sample of answers: their time over their units."""
    n_units = max(1, sum(units))
    return OwnTime(
        unit=unit,
        clock=clock,
        measured_ns=sum(answers_ns) // n_units,
        reference_ns=reference_ns,
        units_milli=1000 * n_units // max(1, len(units)),
    )
