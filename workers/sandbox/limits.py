"""The limits of a run of checks, and what became of a check that could not say True or False."""

from dataclasses import dataclass

from backend.domain.errors import CustomerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`row_s` is wall time for one call of a check, `batch_s` for all calls of a `run_checks`; `memory_bytes` is
    address space, of which the interpreter itself takes about 40 MB. A check that had to be stopped `max_stops` times
    is not called again in this run: its other rows get the same fault."""

    row_s: float = 2.0
    batch_s: float = 120.0
    memory_bytes: int = 256 * 1024 * 1024
    max_stops: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFault:
    """`sentence` may be shown to the customer whose check it is: it holds a line of their own program and what it
    raised. It can hold their data and is never logged."""

    sentence: str


class SandboxUnavailable(CustomerError):
    """This installation's platform cannot hold a check; nothing ran."""

    code = "python_checks_unavailable"
