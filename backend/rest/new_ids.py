"""New UUIDv7s: the clock and the randomness for `backend.domain.ids`, which only computes.

Within one process the values strictly increase, also within a millisecond and when the clock steps back (RFC 9562,
section 6.2, method 2: the random part of the last value plus a random step).
"""

import os
import threading
import time
from uuid import UUID

from backend.domain.ids import Prefix, encode_id, uuid7

_RANDOM_BITS = 74
_lock = threading.Lock()
_last = (0, 0)  # unix_ms, random bits of the newest value


def new_uuid7() -> UUID:
    """A UUIDv7 above every one this process has made before."""
    global _last
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        last_ms, last_bits = _last
        if now_ms > last_ms:
            _last = (now_ms, int.from_bytes(os.urandom(10)) >> 6)
        else:
            bits = last_bits + 1 + int.from_bytes(os.urandom(4))
            # 74 bits are used up: borrow the next millisecond rather than wrap around
            _last = (last_ms, bits) if bits < 1 << _RANDOM_BITS else (last_ms + 1, bits - (1 << _RANDOM_BITS))
        unix_ms, random_bits = _last
    return uuid7(unix_ms=unix_ms, random_bits=random_bits)


def new_id(prefix: Prefix) -> str:
    """A new public id that no row has, e.g. of a request: `req_...`."""
    return encode_id(prefix, new_uuid7())
