"""Who comes next: deficit round robin over tenants (Shreedhar and Varghese 1995), first come first served in one."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Waits(Protocol):
    @property
    def tenant(self) -> str: ...

    @property
    def cost(self) -> int: ...


T = TypeVar("T", bound=Waits)
QUANTUM = 512  # tokens that a tenant may admit a round; a larger request saves up for some rounds


class FairQueue(Generic[T]):
    """Not thread-safe. `cost` is what a request may take at most, in tokens."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()
        self._deficit: dict[str, int] = {}
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def push(self, item: T) -> None:
        self._queues.setdefault(item.tenant, deque()).append(item)
        self._deficit.setdefault(item.tenant, 0)
        self._n += 1

    def push_front(self, item: T) -> None:
        """One that had a place and lost it: it goes first, at no further cost."""
        self._queues.setdefault(item.tenant, deque()).appendleft(item)
        self._deficit[item.tenant] = self._deficit.get(item.tenant, 0) + item.cost
        self._queues.move_to_end(item.tenant, last=False)
        self._n += 1

    def pop(self, fits: Callable[[T], bool]) -> T | None:
        """The next whose turn it is and who `fits`; a tenant whose first does not fit is passed over. None: nobody."""
        stuck = 0
        while self._queues and stuck < len(self._queues):
            tenant, queue = next(iter(self._queues.items()))
            if not fits(queue[0]):
                self._queues.move_to_end(tenant)
                stuck += 1
                continue
            stuck = 0
            if self._deficit[tenant] < queue[0].cost and len(self._queues) > 1:
                self._deficit[tenant] += QUANTUM
                self._queues.move_to_end(tenant)
                continue
            return self._take(tenant, queue)
        return None

    def drop(self, item: T) -> bool:
        queue = self._queues.get(item.tenant)
        if queue is None or item not in queue:
            return False
        queue.remove(item)
        self._n -= 1
        if not queue:
            self._leave(item.tenant)
        return True

    def _take(self, tenant: str, queue: deque[T]) -> T:
        item = queue.popleft()
        self._n -= 1
        self._deficit[tenant] = max(0, self._deficit[tenant] - item.cost)
        if not queue:
            self._leave(tenant)
        return item

    def _leave(self, tenant: str) -> None:
        del self._queues[tenant], self._deficit[tenant]
