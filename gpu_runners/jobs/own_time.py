"""Measure the own time of a model's answers: of the process on a CPU, with one thread, beside a fixed reference
workload that runs before each answer. Another program's load lengthens both alike; wall time is nobody's measure here.

On a CUDA device it is the time between two synchronisations, and no reference runs: a device is rarely shared, and what
shares it is not seen from here. What makes a score of the figures is `backend.domain.evaluation.own_time`.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from backend.domain.evaluation.own_time import Clock
from gpu_runners.artifacts.rules_first import RulesFirst

ROUNDS = 5  # the least of them: what disturbs a process only ever lengthens its time
MIN_ANSWERS = 5
BUDGET_NS = 60 * 10**9  # of own time, so that a loaded machine measures as many answers as an idle one
_WIDTH, _INNER, _TOKENS = 384, 1536, 24
_PASSES, _SMALL, _LOOPS = 2, 200, 9000


class Reference:
    """A fixed amount of the three kinds of work that answering consists of: products of matrices, calls of small array
    operations, and Python. About 4 ms on a server core of 2026 (`REFERENCE_NS`); changing it changes every K-score."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._x = rng.normal(size=(_TOKENS, _WIDTH)).astype(np.float32)
        self._up = (rng.normal(size=(_WIDTH, _INNER)) * 0.03).astype(np.float32)
        self._down = (rng.normal(size=(_INNER, _WIDTH)) * 0.03).astype(np.float32)
        self._small = np.ones(64, dtype=np.float32)

    def __call__(self) -> None:
        x, small = self._x, self._small
        for _ in range(_PASSES):
            x = np.tanh(x @ self._up) @ self._down
        for _ in range(_SMALL):
            small = small * np.float32(1.0001) + np.float32(0.1)
            small.sum()
        seen: dict[int, int] = {}
        total = 0
        for i in range(_LOOPS):
            total += i * i % 7
            seen[i & 255] = total


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTimes:
    """`answers_ns` has an entry for each answer that was measured, the first of those that were given. `reference_ns`
    is the mean time of the reference, 0 where none ran."""

    clock: Clock
    answers_ns: list[int]
    reference_ns: int


def own_times(answers: Sequence[Callable[[], object]], *, device: str) -> OwnTimes:
    """Give each answer up to ROUNDS times, in turn, and take the least of its times; at least five answers, then as
    many as BUDGET_NS lasts. Whoever calls has warmed them up and, on a CPU, seen to one thread (`one_thread`)."""
    is_cpu = not device.startswith("cuda")
    took = _cpu_ns if is_cpu else _device_ns
    reference = Reference()
    reference()
    own: list[list[int]] = []
    beside: list[list[int]] = []
    spent = 0
    for _ in range(ROUNDS):
        own_now, beside_now = [], []
        for i in range(len(own[0]) if own else len(answers)):
            if not own and i >= MIN_ANSWERS and spent > BUDGET_NS:
                break
            beside_now.append(took(reference) if is_cpu else 0)
            own_now.append(took(answers[i]))
            spent += own_now[-1]
        own.append(own_now)
        beside.append(beside_now)
        if spent + sum(own_now) > BUDGET_NS:
            break
    least = [min(times) for times in zip(*own, strict=True)]
    least_beside = [min(times) for times in zip(*beside, strict=True)]
    return OwnTimes(
        clock=Clock.CPU if is_cpu else Clock.DEVICE,
        answers_ns=least,
        reference_ns=sum(least_beside) // max(1, len(least_beside)),
    )


def with_rules(rules: RulesFirst, texts: Sequence[str], answers_ns: Sequence[int]) -> list[int]:
    """The own times where rules are asked first: of what they answer, the look-up alone."""
    times = []
    for text, model_ns in zip(texts, answers_ns, strict=False):  # of a long sample the first were measured
        began = time.process_time_ns()
        is_ruled = rules.answer(text) is not None
        times.append(time.process_time_ns() - began + (0 if is_ruled else model_ns))
    return times


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for BLAS and, where it is loaded, torch in this thread: several burn time while they wait for each
    other, the more the busier the machine is."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else 0
    try:
        with threadpool_limits(1):
            if torch is not None:
                torch.set_num_threads(1)
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(threads)


def _cpu_ns(work: Callable[[], object]) -> int:
    began = time.process_time_ns()
    work()
    return time.process_time_ns() - began


def _device_ns(work: Callable[[], object]) -> int:
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    work()
    torch.cuda.synchronize()
    return time.perf_counter_ns() - began
