"""The servers that generate: what they say of themselves, and which of them a request goes to.

The registry is a table. Each web process reads it at most once a second and keeps two things of its own beside it: how
many requests it has under way at each server, and which did not answer a moment ago.
"""

import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from backend.artifacts.models import RevokedDigest
from backend.domain.ids import Prefix, encode_id
from backend.domain.serving.deployments import ServerLoad, in_order
from backend.domain.serving.wire import ServerHello, ServerOrders
from backend.rest.new_ids import new_uuid7
from backend.serving.models import Server

LEASE_S = 15.0
LOOK_S = 1.0
SUSPECT_S = 3.0
KEEP = timedelta(days=1)  # a dead server's row, for whoever looks for it
MAX_ADAPTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A live server as this process sees it."""

    id: UUID
    name: str
    url: str
    bases: frozenset[str]
    load: ServerLoad


_places: list[Place] = []
_looked_at = float("-inf")
_under_way: Counter[str] = Counter()
_suspect_until: dict[str, float] = {}


def hello(told: ServerHello) -> ServerOrders:
    """Note what a server says of itself; by its name it is the same one as before."""
    found = {
        "url": told.url,
        "bases": told.bases,
        "engine": told.engine,
        "adapters": told.adapters,
        "max_running": told.max_running,
        "n_running": told.n_running,
        "n_waiting": told.n_waiting,
        "is_draining": told.draining,
        "lease_until": timezone.now() + timedelta(seconds=LEASE_S),
    }
    row, _ = Server.objects.update_or_create(
        name=told.name, defaults=found, create_defaults=found | {"id": new_uuid7(), "name": told.name}
    )
    revoked = RevokedDigest.objects.filter(sha256__in=told.adapters).values_list("sha256", flat=True)
    return ServerOrders(server=encode_id(Prefix.SERVER, row.id), lease_s=LEASE_S, revoked=sorted(revoked))


def checked_hello(body: dict[str, Any]) -> ServerHello:
    """As it can be stored. Raises ValueError."""
    told = ServerHello.from_json(body)
    counts = (told.max_running, told.n_running, told.n_waiting)
    if not all(type(n) is int and 0 <= n < 2**31 for n in counts) or told.max_running < 1:
        raise ValueError("max_running, n_running and n_waiting are counts")
    if not isinstance(told.url, str) or not told.url.startswith(("http://", "https://")) or len(told.url) > 300:
        raise ValueError("url is an http address of at most 300 characters")
    if not isinstance(told.name, str) or not 0 < len(told.name) <= 100 or not told.name.isprintable():
        raise ValueError("name is a text of at most 100 characters")
    if not isinstance(told.adapters, list) or len(told.adapters) > MAX_ADAPTERS:
        raise ValueError(f"adapters are at most {MAX_ADAPTERS} digests")
    if not all(isinstance(digest, str) and len(digest) == 64 for digest in told.adapters):
        raise ValueError("adapters are digests")
    if not isinstance(told.bases, list) or not all(set(base) == {"id", "sha256"} for base in told.bases):
        raise ValueError("bases are {id, sha256}")
    if not isinstance(told.engine, dict) or len(str(told.engine)) > 10_000:
        raise ValueError("engine is an object of at most 10,000 characters")
    return told


def look(*, anew: bool = False) -> list[Place]:
    """Live servers, at most LOOK_S old."""
    global _places, _looked_at
    now = time.monotonic()
    if anew or now - _looked_at > LOOK_S:
        rows = Server.objects.filter(lease_until__gt=timezone.now(), is_draining=False).defer("engine", "adapters")
        _places, _looked_at = [_place(row) for row in rows], now
    return _places


def candidates(base_sha256: str, adapter_sha256: str) -> list[Place]:
    """Servers of a base in the order in which to ask them; those that failed a moment ago come last."""
    now = time.monotonic()
    of_base = {place.load.key: place for place in look() if base_sha256 in place.bases}
    loads = [
        ServerLoad(
            key=key,
            n_running=place.load.n_running,
            n_waiting=place.load.n_waiting,
            max_running=place.load.max_running,
            n_here=_under_way[key],
        )
        for key, place in of_base.items()
    ]
    ordered = [of_base[load.key] for load in in_order(adapter_sha256, loads)]
    return sorted(ordered, key=lambda place: _suspect_until.get(place.load.key, 0.0) > now)


def begin(place: Place) -> None:
    _under_way[place.load.key] += 1


def end(place: Place) -> None:
    _under_way[place.load.key] -= 1
    if _under_way[place.load.key] <= 0:
        del _under_way[place.load.key]


def suspect(place: Place) -> None:
    """It did not answer: ask others first for a while."""
    if len(_suspect_until) > 1_000:
        _suspect_until.clear()
    _suspect_until[place.load.key] = time.monotonic() + SUSPECT_S


def forget_servers() -> int:
    """For upkeep: servers that were silent for a day."""
    return Server.objects.filter(lease_until__lt=timezone.now() - KEEP).delete()[0]


def about(server_id: UUID) -> dict[str, Any] | None:
    """What a server says that it runs."""
    row = Server.objects.filter(id=server_id).values("name", "engine").first()
    return None if row is None else {"server": row["name"], **row["engine"]}


def _place(row: Server) -> Place:
    load = ServerLoad(key=str(row.id), n_running=row.n_running, n_waiting=row.n_waiting, max_running=row.max_running)
    bases = frozenset(str(base["sha256"]) for base in row.bases)
    return Place(id=row.id, name=row.name, url=row.url.rstrip("/"), bases=bases, load=load)
