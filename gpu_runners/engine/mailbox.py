"""The way from the engine's thread to readers in event loops: deltas that came while a reader was busy are read as
one."""

import asyncio
from collections import deque
from collections.abc import Iterable

from gpu_runners.models.protocol import Delta


class Mailbox:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._items: deque[Delta | Exception] = deque()

    def put(self, item: Delta | Exception) -> None:
        """Leave a delta, from the engine's thread; `wake` must follow."""
        self._items.append(item)

    async def get(self) -> Delta:
        """All that has come since, as one. Raises what the engine put."""
        while not self._items:
            self._ready.clear()
            if not self._items:
                await self._ready.wait()
        deltas: list[Delta] = []
        while self._items:
            item = self._items[0]
            if isinstance(item, Exception):
                if deltas:
                    break  # raised at the next call, after what came before it
                raise item
            deltas.append(item)
            self._items.popleft()
        return join_deltas(deltas)

    def _set(self) -> None:
        self._ready.set()


def wake(mailboxes: Iterable[Mailbox]) -> None:
    """One call into each reader's loop, however many of its mailboxes have something new."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Mailbox]] = {}
    for mailbox in mailboxes:
        by_loop.setdefault(mailbox.loop, []).append(mailbox)
    for loop, boxes in by_loop.items():
        try:
            loop.call_soon_threadsafe(_set_all, boxes)
        except RuntimeError:  # the loop was closed, so nobody reads there
            continue


def _set_all(mailboxes: Iterable[Mailbox]) -> None:
    for mailbox in mailboxes:
        mailbox._set()


def join_deltas(deltas: list[Delta]) -> Delta:
    if len(deltas) == 1:
        return deltas[0]
    last = deltas[-1]
    return Delta(
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        logprobs=tuple(one for delta in deltas for one in delta.logprobs),
        logprob=last.logprob,
        finish_reason=last.finish_reason,
        counts=last.counts,
    )
