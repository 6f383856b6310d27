"""The servers of deployments: what they say of themselves, and which of them a request goes to.

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
from backend.domain.serving.deployments import ServerLoad, StudentKind, in_order
from backend.domain.serving.wire import ServerOrders, ServerRegistration
from backend.rest.new_ids import new_uuid7
from backend.serving.models import Server

LEASE_S = 15.0
REREAD_S = 1.0
UNHEALTHY_S = 3.0
KEEP = timedelta(days=1)  # a dead server's row, for whoever looks for it
MAX_ADAPTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEndpoint:
    """A live server as this process sees it. `bases` are (sha256, kind of student) of what it answers with."""

    id: UUID
    name: str
    url: str
    bases: frozenset[tuple[str, str]]
    load: ServerLoad


_endpoints: list[ServerEndpoint] = []
_looked_at = float("-inf")
_under_way: Counter[str] = Counter()
_unhealthy_until: dict[str, float] = {}


def register(registration: ServerRegistration) -> ServerOrders:
    """Note what a server says of itself; by its name it is the same one as before."""
    values = {
        "url": registration.url,
        "bases": registration.bases,
        "engine": registration.engine,
        "adapters": registration.adapters,
        "max_running": registration.max_running,
        "n_running": registration.n_running,
        "n_waiting": registration.n_waiting,
        "is_draining": registration.draining,
        "lease_until": timezone.now() + timedelta(seconds=LEASE_S),
    }
    row, _ = Server.objects.update_or_create(
        name=registration.name, defaults=values, create_defaults=values | {"id": new_uuid7(), "name": registration.name}
    )
    revoked = RevokedDigest.objects.filter(sha256__in=registration.adapters).values_list("sha256", flat=True)
    return ServerOrders(server=encode_id(Prefix.SERVER, row.id), lease_s=LEASE_S, revoked=sorted(revoked))


def parse_registration(body: dict[str, Any]) -> ServerRegistration:
    """Parse what a server says of itself into what can be stored. Raises ValueError."""
    registration = ServerRegistration.from_json(body)
    counts = (registration.max_running, registration.n_running, registration.n_waiting)
    if not all(type(n) is int and 0 <= n < 2**31 for n in counts) or registration.max_running < 1:
        raise ValueError("max_running, n_running and n_waiting are counts")
    if (
        not isinstance(registration.url, str)
        or not registration.url.startswith(("http://", "https://"))
        or len(registration.url) > 300
    ):
        raise ValueError("url is an http address of at most 300 characters")
    if (
        not isinstance(registration.name, str)
        or not 0 < len(registration.name) <= 100
        or not registration.name.isprintable()
    ):
        raise ValueError("name is a text of at most 100 characters")
    if not isinstance(registration.adapters, list) or len(registration.adapters) > MAX_ADAPTERS:
        raise ValueError(f"adapters are at most {MAX_ADAPTERS} digests")
    if not all(isinstance(digest, str) and len(digest) == 64 for digest in registration.adapters):
        raise ValueError("adapters are digests")
    if not isinstance(registration.bases, list) or not all(map(_is_base, registration.bases)):
        raise ValueError("bases are {id, sha256} and may have students, a list of kinds")
    if not isinstance(registration.engine, dict) or len(str(registration.engine)) > 10_000:
        raise ValueError("engine is an object of at most 10,000 characters")
    return registration


def _is_base(base: Any) -> bool:
    if not isinstance(base, dict) or not {"id", "sha256"} <= set(base) <= {"id", "sha256", "students"}:
        return False
    kinds = base.get("students", [])
    return isinstance(kinds, list) and len(kinds) <= 20 and all(isinstance(kind, str) for kind in kinds)


def live_servers(*, anew: bool = False) -> list[ServerEndpoint]:
    """Live servers, at most REREAD_S old."""
    global _endpoints, _looked_at
    now = time.monotonic()
    if anew or now - _looked_at > REREAD_S:
        rows = Server.objects.filter(lease_until__gt=timezone.now(), is_draining=False).defer("engine", "adapters")
        _endpoints, _looked_at = [_endpoint(row) for row in rows], now
    return _endpoints


def candidates(base_sha256: str, adapter_sha256: str, student: str = StudentKind.CAUSAL) -> list[ServerEndpoint]:
    """Servers of a base that know this kind of student, in the order in which to ask them; those that failed a moment
    ago come last."""
    now = time.monotonic()
    of_base = {place.load.key: place for place in live_servers() if (base_sha256, student) in place.bases}
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
    return sorted(ordered, key=lambda place: _unhealthy_until.get(place.load.key, 0.0) > now)


def begin(place: ServerEndpoint) -> None:
    _under_way[place.load.key] += 1


def end(place: ServerEndpoint) -> None:
    _under_way[place.load.key] -= 1
    if _under_way[place.load.key] <= 0:
        del _under_way[place.load.key]


def mark_unhealthy(place: ServerEndpoint) -> None:
    """Ask others first for a while: this one did not answer."""
    if len(_unhealthy_until) > 1_000:
        _unhealthy_until.clear()
    _unhealthy_until[place.load.key] = time.monotonic() + UNHEALTHY_S


def forget_servers() -> int:
    """Delete servers that were silent for a day. Upkeep calls this."""
    return Server.objects.filter(lease_until__lt=timezone.now() - KEEP).delete()[0]


def describe(server_id: UUID) -> dict[str, Any] | None:
    """Return what a server says that it runs."""
    row = Server.objects.filter(id=server_id).values("name", "engine").first()
    return None if row is None else {"server": row["name"], **row["engine"]}


def _endpoint(row: Server) -> ServerEndpoint:
    load = ServerLoad(key=str(row.id), n_running=row.n_running, n_waiting=row.n_waiting, max_running=row.max_running)
    # a server of a release before deployments of encoders names no students and knows causal ones
    known = [(str(base["sha256"]), base.get("students", [StudentKind.CAUSAL])) for base in row.bases]
    bases = frozenset((sha256, str(kind)) for sha256, kinds in known for kind in kinds)
    return ServerEndpoint(id=row.id, name=row.name, url=row.url.rstrip("/"), bases=bases, load=load)
