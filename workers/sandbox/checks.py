"""Customers' python checks over rows of answers: which hold, and which could not say.

One call of `run_checks` is one tenant's checks over that tenant's rows, in processes of their own: nothing is shared
with another call. Never called inside a database transaction.
"""

import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence

from backend.domain.spec.outputs import PythonCheck
from workers.sandbox.filter import ARCHITECTURES
from workers.sandbox.limits import CheckFault, Limits, SandboxUnavailable
from workers.sandbox.pointers import parts_at
from workers.sandbox.process import Call, End, run_process

MAX_JOB_CHARS = 8_000_000  # of one process; more rows take several
Verdict = bool | CheckFault


def run_checks(
    checks: Sequence[PythonCheck],
    rows: Sequence[tuple[str, object]],
    *,
    limits: Limits | None = None,
    allow_weak: bool | None = None,
) -> list[list[Verdict]]:
    """Run the checks over rows (input, decoded answer): one verdict a check, in order, for each row. A check with a
    `field` is called for each part the pointer finds and holds when it holds for all; where there is none it holds.
    Raises SandboxUnavailable on a platform without a system-call filter, unless `allow_weak` (default: the deployment's
    setting) says otherwise."""
    if not checks or not rows:
        return [[] for _ in rows]
    _refuse_weak(allow_weak)
    limits = limits or Limits()
    calls: list[Call] = []
    places: list[tuple[int, int]] = []
    for which, check in enumerate(checks):
        for at, (text, value) in enumerate(rows):
            for part in [value] if check.field is None else parts_at(value, check.field):
                calls.append(Call(check=which, text=text, value=part))
                places.append((at, which))
    verdicts: list[list[Verdict]] = [[True] * len(checks) for _ in rows]
    for (at, which), verdict in zip(places, _run_all(checks, calls, limits), strict=True):
        if verdicts[at][which] is True:
            verdicts[at][which] = verdict
    return verdicts


def protections() -> tuple[str, ...]:
    """The walls around a check on this machine, asked of a process that runs none."""
    call = Call(check=0, text="", value=None)
    source = "def check(input, output):\n    return True"
    outcome = run_process([source], [call], limits=Limits(), deadline=time.monotonic() + 30)
    return outcome.active or ()


def _refuse_weak(allow_weak: bool | None) -> None:
    if sys.platform == "linux" and platform.machine() in ARCHITECTURES:
        return
    if allow_weak is None:
        from django.conf import settings

        allow_weak = settings.KOLM_ALLOW_WEAK_SANDBOX
    if not allow_weak:
        raise SandboxUnavailable(
            "Python checks need Linux on x86-64 or arm64: this installation's platform has no system-call filter to "
            "hold them. Use the other kinds of checks."
        )


def _run_all(checks: Sequence[PythonCheck], calls: Sequence[Call], limits: Limits) -> list[Verdict]:
    """One verdict a call. A call that has to be stopped costs its process; the next process goes on behind it."""
    deadline = time.monotonic() + limits.batch_s
    verdicts: list[Verdict] = []
    stops: Counter[int] = Counter()
    while len(verdicts) < len(calls):
        at = len(verdicts)
        call = calls[at]
        if time.monotonic() >= deadline:
            return verdicts + [CheckFault(sentence=_stop_sentence(End.BATCH_TIME, limits))] * (len(calls) - at)
        if stops[call.check] >= limits.max_stops:
            verdicts.append(CheckFault(sentence=f"it was stopped {limits.max_stops} times before and not run again"))
            continue
        job = _a_job(calls, at, limits, stops)
        outcome = run_process([check.source for check in checks], job, limits=limits, deadline=deadline)
        verdicts += [each if isinstance(each, bool) else CheckFault(sentence=each) for each in outcome.verdicts]
        if outcome.end not in (End.DONE, End.BATCH_TIME):
            stops[calls[len(verdicts)].check] += 1
            verdicts.append(CheckFault(sentence=_stop_sentence(outcome.end, limits)))
    return verdicts


def _a_job(calls: Sequence[Call], at: int, limits: Limits, stops: Counter[int]) -> list[Call]:
    """The calls from `at` that fit one process, up to the first of a check that is given up."""
    job: list[Call] = []
    n_chars = 0
    for call in calls[at:]:
        n_chars += len(call.text) + _size(call.value)
        if job and (n_chars > MAX_JOB_CHARS or stops[call.check] >= limits.max_stops):
            break
        job.append(call)
    return job


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value))


def _stop_sentence(end: End, limits: Limits) -> str:
    match end:
        case End.ROW_TIME:
            return f"it took longer than {limits.row_s:g} s for one answer and was stopped"
        case End.BATCH_TIME | End.CPU_TIME:
            return f"the checks took longer than {limits.batch_s:g} s together and were stopped"
        case End.FORBIDDEN:
            return "it asked the system for what a check may not have (files, network, processes) and was stopped"
        case End.FORGED:
            return "it wrote what is no verdict and was stopped"
        case End.CRASHED:
            return "it crashed the interpreter or ran out of memory"
        case _:
            return "it ended its process"
