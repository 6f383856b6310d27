"""The state that all requests of a server of many tenants share, and the metering of one of them."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from backend.domain.serving.wire import Grant
from gpu_runners.models.protocol import Counts
from gpu_runners.serving.adapter_store import AdapterStore
from gpu_runners.serving.engine_pool import EnginePool
from gpu_runners.serving.fair_scheduler import FairScheduler
from gpu_runners.serving.feedback import FeedbackBook
from gpu_runners.serving.journal import CannotJournal, Journal
from gpu_runners.serving.openai.responder import Refusal
from gpu_runners.serving.students import Students

CANCELED, FAILED, RULE = "canceled", "failed", "rule"


@dataclass(slots=True, kw_only=True)
class ServerContext:
    """The state that all requests of a server share. `dedicated` is the sha256 of the one artifact that is merged into
    the base here, "" for a server of many. `has_drafts`: packs and their other sources draft here. `refusals` counts by
    code."""

    key: bytes
    store: AdapterStore
    engines: EnginePool
    scheduler: FairScheduler
    journal: Journal
    students: Students | None = None
    dedicated: str = ""
    has_drafts: bool = True
    is_draining: bool = False
    n_asked: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    feedback: FeedbackBook = field(default_factory=FeedbackBook)

    def check_open(self) -> None:
        """Raises Refusal where no new work may begin."""
        if self.is_draining:
            raise Refusal(503, "draining", "This server is going away; ask another one.", retry_after_s=1.0)
        if self.journal.is_full:
            raise Refusal(503, "cannot_meter", "This server cannot note what is used.", retry_after_s=10.0)

    def about(self) -> dict[str, Any]:
        """Describe what runs for ServerRegistration: one engine as it is, several by base; {} before the first."""
        abouts = self.engines.abouts() | (self.students.about() if self.students else {})
        return next(iter(abouts.values())) if len(abouts) == 1 else abouts


class Meter:
    """One generation in the journal. Until it says otherwise it was cancelled: whoever stops listening says nothing."""

    def __init__(self, context: ServerContext, grant: Grant, token: str) -> None:
        self._context, self._grant = context, grant
        self._began, self._first_us, self._counts = time.perf_counter(), 0, Counts()
        self.reason = CANCELED
        try:
            self._number = context.journal.begin(token, model=grant.sha256, expires_at=grant.expires_at)
        except CannotJournal as error:
            raise _cannot_meter() from error

    def note(self, counts: Counts) -> None:
        if not self._first_us:
            self._first_us = self._elapsed_us()
        before, self._counts = self._counts, counts
        try:
            self._context.journal.note(self._number, counts)
        except CannotJournal as error:
            raise _cannot_meter() from error
        new = counts.prompt_tokens - before.prompt_tokens + counts.completion_tokens - before.completion_tokens
        self._context.scheduler.charge(self._grant.tenant, new)

    def rule(self, latency_us: int) -> None:
        """The whole of a generation that no engine made."""
        self.reason, self._first_us = RULE, latency_us
        self.end(total_us=latency_us)

    def end(self, *, total_us: int = 0) -> None:
        counts, totals = self._counts, self._context.totals
        self._context.journal.end(
            self._number,
            reason=self.reason,
            first_token_us=self._first_us,
            total_us=total_us or self._elapsed_us(),
        )
        totals["requests"] += 1
        totals[f"finished_{self.reason}"] += 1
        totals["prompt_tokens"] += counts.prompt_tokens
        totals["cached_tokens"] += counts.cached_tokens
        totals["completion_tokens"] += counts.completion_tokens
        totals["drafted_tokens"] += counts.drafted_tokens
        totals["accepted_tokens"] += counts.accepted_tokens

    def _elapsed_us(self) -> int:
        return round((time.perf_counter() - self._began) * 1e6)


def _cannot_meter() -> Refusal:
    return Refusal(503, "cannot_meter", "This server cannot note what is used.", retry_after_s=10.0)
