"""The state of Valkey as this process knows it: after a call that got no answer nobody asks again for a moment, so that
a Valkey that hangs costs one time-out in that moment and not one each call."""

import threading
import time
from typing import Any

import redis

PAUSE_S = 2.0


class Pause:
    """Thread-safe. When the time is over one caller asks, and the others do without until it has an answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: float | None = None

    def may_ask(self) -> bool:
        with self._lock:
            if self._until is None:
                return True
            if time.monotonic() < self._until:
                return False
            self._until = time.monotonic() + PAUSE_S
            return True

    @property
    def is_on(self) -> bool:
        return self._until is not None

    def note_failure(self) -> None:
        with self._lock:
            self._until = time.monotonic() + PAUSE_S

    def note_answer(self) -> None:
        if self._until is not None:
            with self._lock:
                self._until = None


pause = Pause()


class PausingRedis(redis.Redis):
    """A client whose every command heeds `pause`. Raises redis.ConnectionError at once while it is on."""

    pause = pause

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if not self.pause.may_ask():
            raise redis.ConnectionError("Valkey failed to answer a moment ago")
        try:
            answer = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except (redis.ConnectionError, redis.TimeoutError):
            self.pause.note_failure()
            raise
        except redis.ResponseError:  # also NOSCRIPT, which one that was started anew says, and the script is sent again
            self.pause.note_answer()
            raise
        self.pause.note_answer()
        return answer


class PatientRedis(PausingRedis):
    """A client for what must not go on without Valkey: a moment in which others had no answer does not stop it, one in
    which it had none itself does."""

    pause = Pause()
