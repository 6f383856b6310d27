"""The fair scheduler: which request is let to the engine next, when more ask than it runs at once.

A tenant has a virtual clock that advances by the tokens it was served; of those who wait, the one whose clock is
furthest behind goes first (Sheng et al. 2024, "Fairness in Serving Large Language Models": virtual token counters). A
tenant that comes back after a pause is brought up to the slowest of the others, so that idling saves nothing up. A
tenant's own limit (`Grant.max_concurrent`) holds beside that; a request over it waits without keeping others back.

One event loop; nothing here is thread-safe.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from gpu_runners.models.protocol import Overloaded

FIRST_GUESS_S = 1.0  # of a request's length, until one has been seen
_KEPT_CLOCKS = 10_000


@dataclass(slots=True)
class _Tenant:
    clock: int = 0
    running: int = 0
    waiting: deque[tuple[asyncio.Future[None], int]] = field(default_factory=deque)

    def may_run(self) -> bool:
        return bool(self.waiting) and self.running < self.waiting[0][1]


class FairScheduler:
    """`max_running` requests at once, `max_waiting` behind them, `max_tenant_waiting` of one tenant; none waits longer
    than `max_wait_s`."""

    def __init__(
        self, *, max_running: int, max_waiting: int = 256, max_tenant_waiting: int = 64, max_wait_s: float = 60.0
    ) -> None:
        self.max_running, self.max_waiting = max_running, max_waiting
        self.max_tenant_waiting, self.max_wait_s = max_tenant_waiting, max_wait_s
        self.n_running = self.n_waiting = self.n_turned_away = 0
        self._tenants: dict[str, _Tenant] = {}
        self._length_s = FIRST_GUESS_S

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str, *, limit: int) -> AsyncIterator[None]:
        """Raises Overloaded, at once where too many wait and after `max_wait_s` otherwise."""
        await self._enter(tenant, limit)
        started = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            lasted = asyncio.get_running_loop().time() - started
            self._length_s += (lasted - self._length_s) * 0.1
            self._leave(tenant)

    def charge(self, tenant: str, n_tokens: int) -> None:
        """Tokens that `tenant` was served just now."""
        if tenant in self._tenants:
            self._tenants[tenant].clock += n_tokens

    def retry_after_s(self) -> float:
        """Estimate when the queue as it stands will be through, from 1 to 60 s."""
        return min(60.0, max(1.0, self._length_s * (self.n_waiting + 1) / self.max_running))

    async def _enter(self, name: str, limit: int) -> None:
        tenant = self._tenants.setdefault(name, _Tenant())
        if not tenant.running and not tenant.waiting:
            tenant.clock = max(tenant.clock, min((t.clock for t in self._busy()), default=0))
        if self.n_running < self.max_running and tenant.running < limit and not tenant.waiting:
            self._start(tenant)
            return
        if self.n_waiting >= self.max_waiting or len(tenant.waiting) >= self.max_tenant_waiting:
            self.n_turned_away += 1
            raise Overloaded(self.retry_after_s())
        let_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (let_in, limit)
        tenant.waiting.append(place)
        self.n_waiting += 1
        try:
            async with asyncio.timeout(self.max_wait_s):
                await let_in
        except BaseException as error:
            self._give_up(name, tenant, place)
            if isinstance(error, TimeoutError):
                self.n_turned_away += 1
                raise Overloaded(self.retry_after_s()) from error
            raise

    def _give_up(self, name: str, tenant: _Tenant, place: tuple[asyncio.Future[None], int]) -> None:
        if place[0].done() and not place[0].cancelled():
            self._leave(name)  # it had been let in at this very moment
        else:
            tenant.waiting.remove(place)
            self.n_waiting -= 1
            self._let_in()

    def _start(self, tenant: _Tenant) -> None:
        tenant.running += 1
        self.n_running += 1

    def _leave(self, name: str) -> None:
        self._tenants[name].running -= 1
        self.n_running -= 1
        self._let_in()
        self._forget_idle()

    def _let_in(self) -> None:
        while self.n_running < self.max_running:
            ready = [tenant for tenant in self._tenants.values() if tenant.may_run()]
            if not ready:
                return
            tenant = min(ready, key=lambda t: t.clock)
            let_in, _ = tenant.waiting.popleft()
            self.n_waiting -= 1
            self._start(tenant)
            let_in.set_result(None)

    def _busy(self) -> list[_Tenant]:
        return [tenant for tenant in self._tenants.values() if tenant.running or tenant.waiting]

    def _forget_idle(self) -> None:
        if len(self._tenants) > _KEPT_CLOCKS:
            self._tenants = {name: t for name, t in self._tenants.items() if t.running or t.waiting}
