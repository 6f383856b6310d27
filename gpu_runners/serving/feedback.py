"""Counts of recipe packs in use: running totals by tenant and pack, reported to the backend now and then.

Counts, recipe ids and shapes; answers, as token ids, only of artifacts whose spec allows it. Best effort: nothing is
written down, a report that is lost is made up for by the next (totals, not differences), and what a death takes with
it was worth a minute of counts.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import uuid4

from backend.domain.recipes.feedback import PackFeedback
from backend.domain.serving.wire import FeedbackBatch, FeedbackRow, Grant
from gpu_runners.http import Refused, Unreachable
from gpu_runners.serving.backend_client import Backend

log = logging.getLogger("kolm.server")
MAX_PACKS = 1_000
REPORTED_ROWS = 500  # of a pack's recipes, shapes and answers each, commonest first
REPORTED_TOKENS = 16_384  # of those answers
_KEPT_ROWS = 4 * REPORTED_ROWS
ROWS_AT_ONCE = 20
EVERY_S = 60.0
T = TypeVar("T")
TenantFeedback = tuple[str, PackFeedback]  # tenant, and what came since the last time


@dataclass(slots=True, kw_only=True)
class _Total:
    grant: str
    artifact_sha256: str
    pack_sha256: str
    log: str = field(default_factory=lambda: uuid4().hex)
    n_answers: int = 0
    n_tokens: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    learned: Counter[tuple[int, ...]] = field(default_factory=Counter)
    is_news: bool = False

    def add(self, feedback: PackFeedback) -> None:
        self.n_answers += feedback.n_answers
        self.n_tokens += feedback.n_tokens
        for row in feedback.tried:
            self.tried[row["id"]] += row["tried"]
            self.accepted[row["id"]] += row["accepted"]
        self.missed.update({row["shape"]: row["n"] for row in feedback.missed if row["shape"]})  # "": lost track
        self.learned.update(tuple(row["tokens"]) for row in feedback.learned)
        self.tried, self.missed, self.learned = _cut(self.tried), _cut(self.missed), _cut(self.learned)
        self.accepted = Counter({id: self.accepted[id] for id in self.tried})
        self.is_news = True

    def row(self) -> FeedbackRow:
        tried = self.tried.most_common(REPORTED_ROWS)
        feedback = PackFeedback(
            artifact_sha256=self.artifact_sha256,
            pack_sha256=self.pack_sha256,
            n_answers=self.n_answers,
            n_tokens=self.n_tokens,
            tried=[{"id": id, "tried": n, "accepted": self.accepted[id]} for id, n in tried],
            missed=[{"shape": shape, "n": n} for shape, n in self.missed.most_common(REPORTED_ROWS)],
            learned=[{"tokens": list(answer)} for answer in self._answers()],
        )
        return FeedbackRow(grant=self.grant, log=self.log, feedback=feedback.to_json())

    def _answers(self) -> Iterator[tuple[int, ...]]:
        left = REPORTED_TOKENS
        for answer, _ in self.learned.most_common(REPORTED_ROWS):
            if len(answer) <= left:
                left -= len(answer)
                yield answer


def _cut(counts: Counter[T]) -> Counter[T]:
    return counts if len(counts) <= _KEPT_ROWS else Counter(dict(counts.most_common(_KEPT_ROWS // 2)))


class FeedbackBook:
    """Used from one event loop. At most MAX_PACKS packs, the longest unused out first."""

    def __init__(self) -> None:
        self._totals: OrderedDict[tuple[str, str], _Total] = OrderedDict()

    def expect(self, grant: Grant, token: str, pack_sha256: str) -> None:
        """A request under this grant is about to use the pack."""
        key = (grant.tenant, pack_sha256)
        total = self._totals.get(key)
        if total is None or total.artifact_sha256 != grant.sha256:
            total = _Total(grant=token, artifact_sha256=grant.sha256, pack_sha256=pack_sha256)
        self._totals[key] = total
        self._totals.move_to_end(key)
        while len(self._totals) > MAX_PACKS:
            self._totals.popitem(last=False)

    def add(self, rows: Iterable[TenantFeedback]) -> None:
        """Add what an engine counted. What nobody expects is left out."""
        for tenant, feedback in rows:
            total = self._totals.get((tenant, feedback.pack_sha256))
            if total is not None:
                total.add(feedback)

    def news(self, most: int = ROWS_AT_ONCE) -> list[FeedbackRow]:
        """Totals that changed since they were given out here."""
        changed = [total for total in self._totals.values() if total.is_news][:most]
        for total in changed:
            total.is_news = False
        return [total.row() for total in changed]

    def requeue(self, rows: Sequence[FeedbackRow]) -> None:
        """Make them news again."""
        logs = {row.log for row in rows}
        for total in self._totals.values():
            total.is_news = total.is_news or total.log in logs


class FeedbackReporter:
    """Sends news to the backend; what does not get through waits for the next time. `collect` gives what the engines
    learned since it was last called, `server` the id that the backend gave, "" before."""

    def __init__(
        self,
        backend: Backend,
        book: FeedbackBook,
        *,
        collect: Callable[[], Iterable[TenantFeedback]],
        server: Callable[[], str],
    ) -> None:
        self._backend, self._book, self._collect, self._server = backend, book, collect, server
        self.n_reported = self.n_failures = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.report()

    async def report(self) -> None:
        """Send one batch after the other until there is no news or no way through."""
        self._book.add(self._collect())
        while self._server() and (rows := self._book.news()):
            batch = FeedbackBatch(server=self._server(), rows=[row.to_json() for row in rows])
            try:
                await self._backend.pack_feedback(batch)
            except (Unreachable, Refused) as error:
                self._book.requeue(rows if isinstance(error, Unreachable) else [])
                self._note_failure(error)
                return
            self.n_failures, self.n_reported = 0, self.n_reported + len(rows)

    def _note_failure(self, error: Exception) -> None:
        if self.n_failures in (0, 3) or self.n_failures % 20 == 0:
            log.warning("feedback of recipe packs does not get through: %s", error)
        self.n_failures += 1
