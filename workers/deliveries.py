"""The sender of webhooks: `python -m workers.deliveries`

A process of its own, so that what receivers do to it (hang, drip, flood) is done to nothing else. It takes due
deliveries by turns, sends each in a thread of its own outside any transaction, and writes down what came of it. It
holds nothing in memory that would be missed: whoever dies between sending and recording leaves a claim that runs out,
and the delivery is sent again under its id. Two of these processes share the work.
"""

import logging
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import UUID

import django

from backend.domain.log_text import guard_logs
from workers.heartbeat import of_process

if TYPE_CHECKING:
    import httpx

    from backend.webhooks.claims import Claim

log = logging.getLogger("kolm.deliveries")

N_SENDERS = 48
PER_TENANT = 12
SLOW_AFTER_MS = 5_000
SLOW_FOR_S = 300.0
N_SLOW = N_SENDERS // 2  # of the senders, for endpoints that were slow lately: they may wait for each other
LOOK_EVERY_S = 1.0
DATABASE_AWAY_S = 2.0


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    django.setup()
    guard_logs()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Sender().run(stop)


class Sender:
    """The loop and its threads. `slow` remembers until when an endpoint counts as slow."""

    def __init__(self, client: "httpx.Client | None" = None) -> None:
        from backend.webhooks.sending import new_client

        self._client = client or new_client(max_connections=2 * N_SENDERS)
        self._in_flight: dict[Future[None], Claim] = {}
        self._slow: dict[UUID, float] = {}
        self._news = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Send until `stop`; what is under way then is finished first (15 s at most)."""
        from django.db import Error as DatabaseError
        from django.db import connection

        # a daemon: a loop that ends by a fault takes the process with it, and that is started again
        listener = threading.Thread(target=self._listen, args=(stop,), name="news", daemon=True)
        listener.start()
        heartbeat = of_process()
        heartbeat.start()
        with ThreadPoolExecutor(N_SENDERS, thread_name_prefix="send") as pool:
            while not stop.is_set():
                heartbeat.turn()
                self._news.clear()
                try:
                    n_taken = self._take(pool)
                except DatabaseError as error:
                    log.warning("database away: %s", type(error).__name__)
                    connection.close()
                    stop.wait(DATABASE_AWAY_S)
                    continue
                if n_taken == 0:
                    connection.close()
                    self._news.wait(LOOK_EVERY_S)
        listener.join()
        self._client.close()

    def _listen(self, stop: threading.Event) -> None:
        from backend.wakeups import listening
        from backend.webhooks.emit import WAKE

        with listening(WAKE) as wait:
            while not stop.is_set():
                wait(LOOK_EVERY_S)
                self._news.set()

    def _take(self, pool: ThreadPoolExecutor) -> int:
        from backend.webhooks.claims import take

        now = time.monotonic()
        self._in_flight = {future: claim for future, claim in self._in_flight.items() if not future.done()}
        self._slow = {endpoint: until for endpoint, until in self._slow.items() if until > now}
        n_free = N_SENDERS - len(self._in_flight)
        n_slow = sum(claim.endpoint_id in self._slow for claim in self._in_flight.values())
        claims = take(n_free, per_tenant=PER_TENANT, slow=self._slow)
        places = min(n_free - len(claims), N_SLOW - n_slow)
        claims += take(places, per_tenant=PER_TENANT, slow=self._slow, only_slow=True)
        for claim in claims:
            future = pool.submit(self._deliver, claim)
            self._in_flight[future] = claim
            future.add_done_callback(lambda _: self._news.set())  # a place is free
        return len(claims)

    def _deliver(self, claim: "Claim") -> None:
        """One attempt, from the claim to its record. What fails here of ours leaves a claim that runs out."""
        from backend.rest.async_queries import let_go
        from backend.webhooks.deliveries import message_of, record
        from backend.webhooks.sending import send

        try:
            message = message_of(claim)
            let_go()  # no connection of the pool is held while the receiver is waited for
            if message is not None:
                outcome = send(message, client=self._client)
                if outcome.latency_ms > SLOW_AFTER_MS:
                    self._slow[claim.endpoint_id] = time.monotonic() + SLOW_FOR_S
                record(claim, message, outcome)
        except Exception:
            log.exception("a delivery was not recorded", extra={"delivery": str(claim.delivery_id)})
        finally:
            let_go()


if __name__ == "__main__":
    main()
