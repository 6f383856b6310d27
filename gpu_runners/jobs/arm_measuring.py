"""The choice of the sources that draft for a task: the choices on the same held-out prompts, one request at a time,
within a budget of seconds; then the fastest, unless fewer sources do nearly as well.

The arms take turns on each prompt, in another order each time, so that a machine that grows slower is no arm's fault.
They are measured as they are served: gated, with what the controllers learn on the way.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import median
from typing import Any

from gpu_runners.engine.sync import generate_all
from gpu_runners.models.protocol import Counts, Drafting, Engine, GenerationRequest

SOURCES = ("pack", "schema", "prompt", "model")  # in the order in which a place is offered to them
NOISE_PPM = 30_000  # two paces that differ by less are the same


@dataclass(slots=True, kw_only=True)
class Arm:
    """The sources that draft, and what came of it. `answers` are those of the measured prompts."""

    sources: tuple[str, ...]
    drafting: Drafting | None
    latencies_us: list[int] = field(default_factory=list)
    own_ns: list[int] = field(default_factory=list)  # the process's time; the wall's where a device computes
    answers: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)

    @property
    def wall_us(self) -> int:
        return sum(self.latencies_us)

    def note(self, text: str, counts: Counts, latency_us: int, own_ns: int) -> None:
        self.latencies_us.append(latency_us)
        self.own_ns.append(own_ns)
        self.answers.append(text)
        self.counts["n_tokens"] += counts.completion_tokens
        self.counts["n_steps"] += counts.steps
        self.counts["drafted"] += counts.drafted_tokens
        self.counts["accepted"] += counts.accepted_tokens
        for one in counts.by_source:
            self.drafted[one.kind] += one.drafted
            self.accepted[one.kind] += one.accepted

    def clear(self) -> None:
        self.latencies_us, self.own_ns, self.answers = [], [], []
        for counter in (self.counts, self.drafted, self.accepted):
            counter.clear()

    def to_json(self) -> dict[str, Any]:
        taken = sorted(self.latencies_us)
        return {
            "sources": list(self.sources),
            "n_prompts": len(taken),
            **{name: self.counts[name] for name in ("n_tokens", "n_steps", "drafted", "accepted")},
            "wall_us": self.wall_us,
            "p50_us": taken[len(taken) // 2],
            "by_source": [
                {"kind": name, "drafted": self.drafted[name], "accepted": self.accepted[name]}
                for name in self.sources
                if self.drafted[name]
            ],
            "latencies_us": list(self.latencies_us),
        }


def choices(allowed: Sequence[str]) -> list[tuple[str, ...]]:
    """The arms to measure: nothing, each source alone, and the chains of those that are allowed: two, then more.

    >>> choices(["schema", "pack"])
    [(), ('pack',), ('schema',), ('pack', 'schema')]
    """
    known = [name for name in SOURCES if name in allowed]
    groups: list[tuple[str, ...]] = [(), *((name,) for name in known)]
    groups += [pair for pair in combinations(known, 2) if pair[0] == "pack" or len(known) == 2]
    return groups + [tuple(known[:n]) for n in range(3, len(known) + 1)]


def measure_arms(
    engine: Engine,
    arms: Sequence[Arm],
    requests: Sequence[Callable[[], GenerationRequest]],
    *,
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Arm]:
    """The arms that the budget had room for, each with the same prompts, as many as it allows and at least one. The
    first of `arms` is always among them; then the longest chain is the most worth knowing. `requests` make the request
    of a prompt, tokenising included. The first prompt is a rehearsal where it leaves half of the budget; what an engine
    does once, when it is first asked to draft, is not of it."""
    for arm in arms:
        generate_all(engine, [replace(requests[0](), drafting=arm.drafting, max_new_tokens=1)])
    began = clock()
    taking_part: list[Arm] = []
    for arm in sorted(arms, key=lambda arm: (bool(arm.sources), -len(arm.sources))):
        if not taking_part or clock() - began < budget_s:
            _answer(engine, arm, requests[0])
            taking_part.append(arm)
    measured = [arm for arm in arms if arm in taking_part]
    on_progress(1, len(requests))
    if clock() - began < budget_s / 2 and len(requests) > 1:
        for arm in measured:
            arm.clear()
    for turn, request in enumerate(requests[1:], start=1):
        spent = clock() - began
        if spent + spent / turn > budget_s:
            break
        for k in range(len(measured)):
            _answer(engine, measured[(turn + k) % len(measured)], request)
        on_progress(turn + 1, len(requests))
    return measured


def _answer(engine: Engine, arm: Arm, request: Callable[[], GenerationRequest]) -> None:
    began, own = time.perf_counter_ns(), time.process_time_ns()
    (done,) = generate_all(engine, [replace(request(), drafting=arm.drafting)])
    wall_ns, own_ns = time.perf_counter_ns() - began, time.process_time_ns() - own
    is_cpu = not str(engine.about.get("device", "cpu")).startswith("cuda")
    arm.note(done.text, done.counts, wall_ns // 1000, own_ns if is_cpu else wall_ns)


def chosen_arm(arms: Sequence[Arm]) -> tuple[int, str]:
    """The arm to serve with, and why. The first is the one without drafts."""
    plain = arms[0]
    pace = [pace_ppm(arm, plain) for arm in arms]
    near = [i for i in range(len(arms)) if pace[i] <= min(pace) + NOISE_PPM]
    chosen = min(near, key=lambda i: (len(arms[i].sources), pace[i], i))
    n = len(plain.latencies_us)
    prompts = f"{n} held-out prompt{'s' if n > 1 else ''}"
    if len(arms) == 1:
        return 0, f"On {prompts} there was nothing to draft from, or no time to measure it."
    if chosen == 0:
        return 0, f"On {prompts} nothing drafts for less time than it costs."
    saved = 100 - -(-pace[chosen] // 10_000)
    return chosen, f"On {prompts} {' + '.join(arms[chosen].sources)} takes {saved} % less time than no drafts."


def pace_ppm(arm: Arm, plain: Arm) -> int:
    """The median over the prompts of what an answer takes beside the same answer without drafts: what disturbs the
    machine for a moment disturbs one prompt."""
    pairs = zip(arm.latencies_us, plain.latencies_us, strict=True)
    return round(median(1_000_000 * mine / max(1, its) for mine, its in pairs))


def own_pace_ppm(arm: Arm, plain: Arm) -> int:
    """The own time of an arm's answers beside that of the same answers without drafts. The arms took turns on each
    prompt, so a load beside them is in both."""
    return 1_000_000 * sum(arm.own_ns) // max(1, sum(plain.own_ns))
