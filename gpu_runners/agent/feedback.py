"""Counts of recipe packs in infer jobs, reported to the backend as servers report them (`serving.feedback`): totals by
artifact, at most once in EVERY_S, best effort."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from backend.domain.serving.wire import BadGrant, FeedbackBatch, grant_key, read_grant
from gpu_runners.agent.lease_client import RunnerClient
from gpu_runners.http import Refused, Unreachable
from gpu_runners.serving.feedback import EVERY_S, FeedbackBook

if TYPE_CHECKING:  # torch, which a worker that answers label tasks alone does not load
    from gpu_runners.artifacts.loader import Model

log = logging.getLogger("kolm.runner")


class InferenceFeedback:
    """Feedback of the inference worker, used from its thread. One job is answered at a time, so what an engine counted
    since the last one is of this one's artifact."""

    def __init__(self, *, token: str, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._key, self._name, self._clock = grant_key(token), name, clock
        self._book = FeedbackBook()
        self._reported_at = -EVERY_S

    def note(self, model: "Model", grant: str) -> None:
        """`grant` is the job's; without one the counts are nobody's, and dropped."""
        report = getattr(getattr(model, "engine", None), "pack_feedback", None)
        reports = [] if report is None else report()
        drafting = getattr(model, "drafting", None)
        if not (reports and grant and drafting is not None and drafting.pack is not None):
            return
        try:
            named = read_grant(grant, self._key, now=None)
        except BadGrant as error:
            log.warning("feedback of a recipe pack is dropped: %s", error)
            return
        self._book.expect(named, grant, drafting.pack.key)
        self._book.add((named.tenant, feedback) for _, feedback in reports)

    def report(self, client: RunnerClient) -> None:
        """Report, where it is time. What does not get through waits; what is refused is dropped."""
        if self._clock() - self._reported_at < EVERY_S:
            return
        while rows := self._book.news():
            self._reported_at = self._clock()
            batch = FeedbackBatch(server=self._name, rows=[row.to_json() for row in rows])
            try:
                client.pack_feedback(batch)
            except Unreachable as error:
                self._book.requeue(rows)
                log.warning("feedback of recipe packs does not get through: %s", error)
                return
            except Refused as error:
                log.warning("feedback of recipe packs is refused: %s", error)
                return
