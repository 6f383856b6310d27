"""The sender of a body, known before a byte of it is read.

An area of addresses has a rule: how its senders prove themselves, and how many bytes it takes from somebody who does
not. Which rules there are is the business of the apps that know keys, runners and sessions; `backend.asgi` names them.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backend.rest.async_queries import query
from backend.rest.problems import Refusal

REMEMBERED_S = 30.0  # of who sent a body; the view asks anew whether the key still holds
MOST_REMEMBERED = 10_000

Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """`find(path, credential)` gives the sender, such as "tenant 0190...", or None; it may ask the database.
    `credential` is the header (in lower case) that proves who sends. `page(refusal, headers)` gives the HTML in which
    the area's readers see a refusal; without it they get a problem as JSON."""

    prefix: str
    credential: str
    find: Callable[[str, str], str | None]
    strangers_bytes: int = 0
    is_one_for_all_paths: bool = True
    page: Callable[[Refusal, Headers], str] | None = None


class SenderBook:
    def __init__(self, areas: Sequence[Area]) -> None:
        self._areas = areas
        self._kept: dict[bytes, tuple[float, str]] = {}

    def area_of(self, path: str) -> Area | None:
        """The first area whose prefix the path has."""
        return next((area for area in self._areas if path.startswith(area.prefix)), None)

    async def sender_of(self, area: Area, path: str, headers: Headers) -> str | None:
        """Raises what the database raises."""
        presented = headers.get(area.credential, "")
        if not presented:
            return None
        where = "" if area.is_one_for_all_paths else path
        key = hashlib.sha256(f"{area.prefix}\n{where}\n{presented}".encode()).digest()
        kept = self._kept.get(key)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        sender = await query(area.find)(path, presented)
        if sender is not None:
            if len(self._kept) >= MOST_REMEMBERED:
                self._kept.clear()
            self._kept[key] = (time.monotonic() + REMEMBERED_S, sender)
        return sender
