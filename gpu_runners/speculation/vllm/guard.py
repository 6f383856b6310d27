"""The guard that keeps an error of ours out of vLLM: what a proposer raises would end its engine, and with it every
tenant's answers.

An error that belongs to one request ends that request's drafts. One that belongs to none ends those of all that run;
after eight steps of these in a row, drafting is over until the server starts anew. Answers go on without. What is
logged names the place and the kind, never the message, which may hold a tenant's text.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, TypeVar, cast

from gpu_runners.models.protocol import SourceCount
from gpu_runners.speculation.drafter import Drafter

log = logging.getLogger("kolm.server")
_MOST_STEPS = 8
_ENDS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
Result = TypeVar("Result")


class DraftErrors:
    """`n_errors` since the start; the first, second, fourth, eighth ... of them is logged."""

    def __init__(self) -> None:
        self.n_errors = 0
        self.is_off = False
        self._n_steps = 0  # without a good one in between

    def caught(self, where: str) -> "_Caught":
        return _Caught(self, where)

    def note_step(self, *, is_good: bool) -> None:
        self._n_steps = 0 if is_good else self._n_steps + 1
        if self._n_steps >= _MOST_STEPS and not self.is_off:
            self.is_off = True
            log.error("drafting is off: %d steps in a row had errors; answers go on without", _MOST_STEPS)

    def note(self, where: str, error: BaseException) -> None:
        self.n_errors += 1
        if self.n_errors & (self.n_errors - 1) == 0:
            log.error("error %d in drafts (%s): %s at %s", self.n_errors, where, type(error).__name__, _place(error))


class _Caught:
    """Ends the block that raises. All but what ends a process or a task is caught: a panic in a Rust library is no
    `Exception`."""

    __slots__ = ("_errors", "_where")

    def __init__(self, errors: DraftErrors, where: str) -> None:
        self._errors, self._where = errors, where

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, _ENDS):
            return False
        self._errors.note(self._where, error)
        return True


class GuardedDrafter:
    """A `Drafter` that falls silent with its first error."""

    def __init__(self, drafter: Drafter, errors: DraftErrors) -> None:
        self._drafter, self._errors = drafter, errors
        self.is_silent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    @property
    def counts(self) -> tuple[SourceCount, ...]:
        with self._errors.caught("the counts of"):
            return self._drafter.counts
        return ()

    def propose(self, room: int) -> list[int]:
        return self._call(lambda: list(map(index, self._drafter.propose(room))), [])

    def observe_accepted(self, tokens: Sequence[int], *, fed: Sequence[int] | None = None) -> int:
        return self._call(lambda: self._drafter.observe_accepted(tokens, fed=fed), 0)

    def advance(self, tokens: Sequence[int]) -> None:
        self._call(lambda: self._drafter.advance(tokens), None)

    def _call(self, call: Callable[[], Result], otherwise: Result) -> Result:
        if not self.is_silent:
            with self._errors.caught("one request's"):
                return call()
            self.is_silent = True
            self._drafter.drop()
        return otherwise


def guard(drafter: Drafter, errors: DraftErrors) -> Drafter:
    return cast(Drafter, GuardedDrafter(drafter, errors))


def _place(error: BaseException) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "?" if at is None else f"{at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno}"
