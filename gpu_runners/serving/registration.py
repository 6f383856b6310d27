"""A server's reports to the backend, for as long as it lives: that it is there, and what was used.

A backend that does not answer stops neither: granted requests go on being answered, their usage is kept in the journal,
and both are reported later, with jitter, so that servers that lost the same backend do not come back together.
"""

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from backend.domain.serving.wire import ServerOrders, ServerRegistration, UsageBatch
from gpu_runners.http import Refused, Unreachable, backoff_s
from gpu_runners.serving.backend_client import Backend
from gpu_runners.serving.journal import CannotJournal, Journal
from gpu_runners.serving.server_context import ServerContext

log = logging.getLogger("kolm.server")
ROWS = 200
FIRST_LEASE_S = 30.0
_NAMED_ADAPTERS = 5000


class Registration:
    """Registers anew every third of the lease and carries out the orders. `server` is the id the backend gave, ""
    before the first answer."""

    def __init__(self, backend: Backend, context: ServerContext, description: Callable[[], ServerRegistration]) -> None:
        self._backend, self._context, self._describe = backend, context, description
        self.server, self.lease_s, self.n_failures = "", FIRST_LEASE_S, 0
        self._rng, self._soon = random.Random(), asyncio.Event()
        self._registered_engine: dict[str, object] = {}

    async def run(self) -> None:
        while True:
            wait_s = await self.register()
            self._soon.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._soon.wait()

    def register_soon(self) -> None:
        """Register soon: something changed that the gateway should know now."""
        self._soon.set()

    async def register_engine(self) -> None:
        """Register now, where another engine runs than at the last registration."""
        if self._describe().engine != self._registered_engine:
            await self.register()

    async def register(self) -> float:
        """Register once; seconds until the next time."""
        description = self._describe()
        try:
            orders = await self._backend.register(description)
        except (Unreachable, Refused) as error:
            if self.n_failures in (0, 3) or self.n_failures % 20 == 0:
                log.warning("the backend does not know of this server: %s", error)
            self.n_failures += 1
            return backoff_s(self.n_failures, rng=self._rng, cap_s=self.lease_s / 3)
        if self.n_failures or not self.server:
            log.info("registered as %s, lease %.0f s", orders.server, orders.lease_s)
        self.n_failures, self._registered_engine = 0, description.engine
        await self._obey(orders)
        return max(0.1, self.lease_s / 3 * self._rng.uniform(0.8, 1.0))

    async def _obey(self, orders: ServerOrders) -> None:
        self.server, self.lease_s = orders.server, max(0.3, orders.lease_s)
        for sha256 in orders.revoked:
            log.warning("the artifact %s… is revoked and dropped", sha256[:12])
            self._context.store.revoke(sha256)
            await self._context.engines.forget(sha256)
        for sha256 in self._context.store.idle():
            await self._context.engines.forget(sha256)


class UsageReporter:
    """Sends what ended to the backend, in batches, until it is booked. `first` runs before each: the backend notes with
    the usage which engine answered, and has to know of it by then."""

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        server: Callable[[], str],
        *,
        every_s: float = 1.0,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._backend, self._journal, self._server, self._every_s = backend, journal, server, every_s
        self._first = first
        self._rng = random.Random()
        self.n_failures = self.n_booked = 0
        self.last_booked_at = time.monotonic()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(await self.report())

    async def report(self) -> float:
        """Report one batch at most; seconds until the next."""
        rows = self._journal.next_unbooked(ROWS if self.n_failures == 0 else 1)
        if not rows or not self._server():
            self.last_booked_at = time.monotonic()
            return self._every_s
        if self._first is not None:
            await self._first()
        batch = UsageBatch(server=self._server(), rows=[row.to_json() for _, row in rows])
        try:
            refused = await self._backend.book(batch)
        except Unreachable as error:
            return self._later(f"usage is kept for later: {error}")
        except Refused as error:
            if len(rows) > 1:
                self.n_failures = 1  # one of them: find out which
                return 0.0
            return self._set_aside(rows[0][0], error)
        self._put_aside([rows[place][0] for place in refused])
        numbers = [number for place, (number, _) in enumerate(rows) if place not in refused]
        self._journal.drop_booked(numbers, now=time.time())
        self.n_booked, self.n_failures, self.last_booked_at = self.n_booked + len(numbers), 0, time.monotonic()
        return 0.0 if self._journal.n_unbooked else self._every_s

    async def report_all(self, *, within_s: float) -> None:
        """Report what is left before the process ends; what does not get through is reported by the next one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._journal.n_unbooked and self._server():
                    await asyncio.sleep(await self.report())

    def _later(self, why: str) -> float:
        if self.n_failures in (0, 3) or self.n_failures % 20 == 0:
            log.warning("%s", why)
        self.n_failures += 1
        return backoff_s(self.n_failures, rng=self._rng)

    def _set_aside(self, number: int, error: Refused) -> float:
        """A token that is refused is refused for every row; only what is wrong with one row puts that row aside."""
        if any(f"answered {status}" in str(error) for status in (401, 403, 404)):
            return self._later(f"usage is refused: {error}")
        self._put_aside([number])
        self.n_failures = 0
        return 0.0

    def _put_aside(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            with contextlib.suppress(CannotJournal):
                self._journal.set_aside(number)


def describe_server(
    context: ServerContext,
    *,
    name: str,
    url: str,
    bases: list[dict[str, Any]],
    max_running: int,
    engine: dict[str, object],
) -> ServerRegistration:
    return ServerRegistration(
        name=name,
        url=url,
        bases=bases,
        engine=json.loads(json.dumps(engine, default=str)),
        max_running=max_running,
        n_running=context.scheduler.n_running,
        n_waiting=context.scheduler.n_waiting,
        adapters=context.store.names()[:_NAMED_ADAPTERS],
        draining=context.is_draining,
    )
