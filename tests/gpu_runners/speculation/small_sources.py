"""Sources of known quality, and rows and steps without an engine."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_runners.models.protocol import DraftKind, GenerationRequest
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.controller import Controller
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.packs import PackShelf


class Ticking:
    """A clock for which every look takes 1.5 us."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.5e-6
        return self.now


class Told:
    """Proposes what it was told at each place of the answer; where `right` is below 1, with wrong tokens among it. On a
    `clock` it takes what a pack takes: 10 us a proposal, 2 us a token that came."""

    def __init__(
        self,
        kind: DraftKind,
        answer: Sequence[int],
        *,
        right: float = 1.0,
        run: int = 8,
        seed: int = 0,
        clock: Ticking | None = None,
    ) -> None:
        self.kind, self.key = kind, 0
        self._answer, self._right, self._run, self._clock = answer, right, run, clock
        self._rng = random.Random(seed)
        self._at = 0
        self.n_asked = 0

    def advance(self, token: int) -> None:
        self._at += 1
        if self._clock is not None:
            self._clock.now += 2e-6

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        self.n_asked += 1
        if self._clock is not None:
            self._clock.now += 10e-6
        at = self._at + len(ahead)
        run = self._answer[at : at + min(most, self._run)]
        return [token if self._rng.random() < self._right else token + 1 for token in run]


@dataclass(eq=False)
class SmallRow:
    request: GenerationRequest
    tokens: list[int]
    limit: int
    matcher: Any | None = None
    drafter: Drafter | None = None
    draft: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Seconds of a step: `plain_s` and 2 % a row; drafts add `fixed` and `slope` a drafted token a row, as shares.
    Every step is up to `noise` longer or shorter, and `busy` of them take up to twelve milliseconds more."""

    plain_s: float = 0.004
    fixed: float = 0.1
    slope: float = 0.15
    noise: float = 0.1
    busy: float = 0.0

    def seconds(self, n_rows: int, n_drafted: int, rng: random.Random) -> float:
        plain = self.plain_s * (1 + 0.02 * n_rows)
        share = self.fixed + self.slope * n_drafted / n_rows if n_drafted else 0.0
        pause = 0.012 * rng.random() if rng.random() < self.busy else 0.0
        return plain * (1 + share) * (1 + self.noise * rng.uniform(-1, 1)) + pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    seconds: float
    n_steps: int
    n_tokens: int
    n_drafted: int
    n_accepted: int


def simulated(
    machine: Machine,
    *,
    right: float,
    n_rows: int,
    n_requests: int = 64,
    seed: int = 0,
    drafts: bool = True,
    right_later: float | None = None,
) -> Run:
    """`n_requests` answers of 30 to 90 tokens, `n_rows` at a time, all of one controller; `drafts` False: without. In
    the later half `right_later` of the drafted tokens are right."""
    rng, lengths = random.Random(seed), random.Random(seed + 1)
    clock = Ticking()
    batch = BatchDrafter(PackShelf(lambda: [], tokenizer_sha256=""), clock=clock)
    controller = Controller(batch.costs)
    answers = [[lengths.randrange(2, 900) for _ in range(lengths.randint(30, 90))] for _ in range(n_requests)]
    rows: list[tuple[SmallRow, list[int]]] = []
    seconds, n_steps, n_tokens, n_drafted, n_accepted = 0.0, 0, 0, 0, 0
    while answers or rows:
        while answers and len(rows) < n_rows:
            answer = answers.pop()
            row = SmallRow(request=GenerationRequest(id="", prompt=(1,), max_new_tokens=99), tokens=[1], limit=100)
            is_late = right_later is not None and 2 * len(answers) < n_requests
            now_right = right_later if is_late and right_later is not None else right
            source = Told(DraftKind.PROMPT, answer, right=now_right, seed=rng.randrange(1 << 30), clock=clock)
            row.drafter = Drafter([source], controller, max_draft=16, matcher=None, clock=clock)
            rows.append((row, answer))
        drafted = batch.propose([row for row, _ in rows]) if drafts else [[] for _ in rows]
        for (row, answer), draft in zip(rows, drafted, strict=True):
            row.draft = draft
            kept = verified(draft, answer[len(row.tokens) - 1 :])
            row.tokens += kept
            n_tokens, n_drafted, n_accepted = n_tokens + len(kept), n_drafted + len(draft), n_accepted + len(kept) - 1
            if drafts:
                batch.observe_accepted(row, kept)
        took = machine.seconds(len(rows), sum(map(len, drafted)), rng)
        if drafts:
            batch.note_step(len(rows), sum(map(len, drafted)), took)
        seconds, n_steps = seconds + took, n_steps + 1
        rows = [(row, answer) for row, answer in rows if len(row.tokens) <= len(answer)]
    return Run(
        seconds=seconds + clock.now, n_steps=n_steps, n_tokens=n_tokens, n_drafted=n_drafted, n_accepted=n_accepted
    )


def verified(draft: Sequence[int], answer: Sequence[int]) -> list[int]:
    """What an engine keeps of a step whose model goes on with `answer`."""
    n = 0
    while n < min(len(draft), len(answer) - 1) and draft[n] == answer[n]:
        n += 1
    return list(answer[: n + 1])
