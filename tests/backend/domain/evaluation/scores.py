"""Own times for tests of scores: the one number that matters, measured beside a reference that takes what it should."""

from backend.domain.evaluation.own_time import REFERENCE_NS, Clock, OwnTime, Unit


def own(us: int, unit: Unit = Unit.ANSWER, *, units: int = 1) -> OwnTime:
    return OwnTime(
        unit=unit, clock=Clock.CPU, measured_ns=1000 * us, reference_ns=REFERENCE_NS, units_milli=1000 * units
    )
