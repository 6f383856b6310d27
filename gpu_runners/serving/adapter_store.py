"""The authorised resolver: from a grant to an adapter that an engine may load, or to a student on an encoder.

Nothing is found by name. A grant names one `.kolm` by its sha256; its bytes come from memory-backed folders, the disk
or the backend (which checks the grant itself), and are verified whole before anything of them is parsed. The artifact
must belong to the grant's tenant and to a base that is served here, tokenizer included. Engines have their own slots
above these tiers.
"""

import asyncio
import contextlib
import hashlib
import itertools
import logging
import shutil
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from backend.domain.serving.wire import Grant
from gpu_runners.http import Unreachable
from gpu_runners.serving.adapter_files import KolmFiles, is_digest, private_folder
from gpu_runners.serving.adapter_loading import Adapter, OpenBase, check_tenant, make_refusal, open_artifact
from gpu_runners.serving.backend_client import ArtifactRefused
from gpu_runners.serving.openai.responder import Refusal
from gpu_runners.serving.students import Student, Students

log = logging.getLogger("kolm.server")
REFUSED_FOR_S = 5.0
_TRUSTED_FOR_S = 30.0  # how long a folder in steady use is compared by size and time alone
_KEPT_REVOKED = 10_000

Opened = Adapter | Student
Fetch = Callable[[str, str], Awaitable[bytes]]  # (sha256, grant) -> bytes; raises ArtifactRefused, Unreachable


@dataclass(slots=True)
class _Kept:
    adapter: Opened
    n_using: int = 0
    used_at: float = 0.0
    idle_s: int = 0
    is_pinned: bool = False


class AdapterStore:
    """Used from one event loop; files are read and verified in threads. `unpacked` should lie in memory (tmpfs).
    Without `students`, artifacts on encoders are refused."""

    def __init__(
        self,
        *,
        kolms: KolmFiles,
        unpacked: Path,
        ram_bytes: int,
        fetch: Fetch,
        open_base: OpenBase,
        keyring: Path | None,
        students: Students | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kolms, self._root, self._ram_bytes = kolms, private_folder(unpacked), ram_bytes
        self._fetch, self._open_base, self._keyring, self._clock = fetch, open_base, keyring, clock
        self._students = students
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._count = itertools.count(1)
        self._loading: dict[tuple[str, str], asyncio.Task[Opened]] = {}
        self._refused: dict[tuple[str, str], tuple[float, Refusal]] = {}
        self._revoked: OrderedDict[str, None] = OrderedDict()
        self.counts = dict.fromkeys(("ram_hits", "disk_hits", "fetched", "evicted", "damaged", "refused"), 0)
        for leftover in self._root.iterdir():  # of a process that died: nobody vouches for them
            shutil.rmtree(leftover, ignore_errors=True)

    @contextlib.asynccontextmanager
    async def using(self, grant: Grant, token: str) -> AsyncIterator[Opened]:
        """The grant's adapter or student, which stays where it is inside the block. Raises Refusal."""
        adapter = await self._get(grant, token)
        kept = self._keep(grant, adapter)
        kept.n_using += 1
        try:
            yield kept.adapter
        finally:
            kept.n_using -= 1
            kept.used_at = self._clock()
            self._trim()

    def is_revoked(self, sha256: str) -> bool:
        return sha256 in self._revoked

    def revoke(self, sha256: str) -> None:
        """Drop it from every tier here, for good; the caller tells the engines."""
        self._revoked[sha256] = None
        while len(self._revoked) > _KEPT_REVOKED:
            self._revoked.popitem(last=False)
        self._drop(sha256)
        if is_digest(sha256):
            self._kolms.drop(sha256)

    def idle(self) -> list[str]:
        """Drop from memory what its deployment lets go after `idle_s`; their keys, for the engines to do the same."""
        now = self._clock()
        gone = [
            sha256
            for sha256, kept in self._kept.items()
            if kept.idle_s and not kept.n_using and not kept.is_pinned and now - kept.used_at > kept.idle_s
        ]
        for sha256 in gone:
            self._drop(sha256)
        return gone

    def names(self) -> list[str]:
        """Every adapter that is here, warmest first."""
        warm = list(reversed(self._kept))
        return warm + [sha256 for sha256 in reversed(self._kolms.names()) if sha256 not in self._kept]

    @property
    def ram_bytes(self) -> int:
        return sum(kept.adapter.n_bytes for kept in self._kept.values())

    @property
    def n_in_ram(self) -> int:
        return len(self._kept)

    @property
    def disk_bytes(self) -> int:
        return self._kolms.n_bytes

    @property
    def n_on_disk(self) -> int:
        return len(self._kolms.names())

    async def _get(self, grant: Grant, token: str) -> Opened:
        if not is_digest(grant.sha256):
            raise Refusal(400, "bad_grant", "The grant names no artifact.")
        self._refuse_known(grant)
        kept = self._kept.get(grant.sha256)
        if kept is not None and await self._is_sound(kept) and self._kept.get(grant.sha256) is kept:
            self.counts["ram_hits"] += 1
            check_tenant(grant, kept.adapter.tenant_digest)
            return kept.adapter
        where = (grant.tenant, grant.sha256)
        task = self._loading.get(where)
        if task is None:
            task = self._loading[where] = asyncio.create_task(self._load(grant, token))
            task.add_done_callback(lambda _: self._loading.pop(where, None))
        try:
            adapter = await asyncio.shield(task)
        except Refusal as refusal:
            if refusal.status < 500:
                self._refused[where] = (self._clock() + REFUSED_FOR_S, refusal)
            raise
        self._refuse_known(grant)  # it may have been revoked while it was loaded
        return adapter

    def _refuse_known(self, grant: Grant) -> None:
        now = self._clock()
        if self.is_revoked(grant.sha256):
            raise make_refusal(410, "artifact_revoked", "The artifact has been revoked.")
        if len(self._refused) > 1000:
            self._refused = {where: known for where, known in self._refused.items() if known[0] > now}
        until, refusal = self._refused.get((grant.tenant, grant.sha256), (0.0, None))
        if refusal is not None and until > now:
            raise make_refusal(refusal.status, refusal.code, refusal.message)

    async def _is_sound(self, kept: _Kept) -> bool:
        to_the_byte = not kept.n_using and self._clock() - kept.used_at > _TRUSTED_FOR_S
        check = kept.adapter.is_sound
        sound = await asyncio.to_thread(check, to_the_byte=True) if to_the_byte else check(to_the_byte=False)
        if not sound:
            self.counts["damaged"] += 1
            log.error("the folder of %s… was changed by somebody else; it is made anew", kept.adapter.key[:12])
            self._kept.pop(kept.adapter.key, None)
        return sound

    async def _load(self, grant: Grant, token: str) -> Opened:
        try:
            data = await asyncio.to_thread(self._kolms.get, grant.sha256)
            source = "disk_hits" if data is not None else "fetched"
            if data is None:
                data = await self._fetch_bytes(grant, token)
            number = self._numbers.setdefault(grant.sha256, next(self._count))
            adapter = await asyncio.to_thread(
                open_artifact,
                data,
                grant,
                number=number,
                root=self._root,
                keyring=self._keyring,
                open_base=self._open_base,
                students=self._students,
            )
        except Refusal:
            self.counts["refused"] += 1
            raise
        self.counts[source] += 1
        if source == "fetched" and not self.is_revoked(grant.sha256):
            await asyncio.to_thread(self._kolms.put, grant.sha256, data)
        return adapter

    async def _fetch_bytes(self, grant: Grant, token: str) -> bytes:
        try:
            data = await self._fetch(grant.sha256, token)
        except ArtifactRefused as error:
            gone = error.status in (404, 410)
            code = "artifact_not_available" if gone else "artifact_refused"
            raise make_refusal(404 if gone else 403, code, "The artifact is not to be had.") from error
        except Unreachable as error:
            raise Refusal(
                503, "backend_unreachable", "The artifact cannot be fetched at the moment.", retry_after_s=2.0
            ) from error
        if hashlib.sha256(data).hexdigest() != grant.sha256:
            raise make_refusal(502, "artifact_altered", "The artifact that came is not the one that was granted.")
        return data

    def _keep(self, grant: Grant, adapter: Opened) -> _Kept:
        key = adapter.key
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(adapter=adapter)
        kept.idle_s, kept.is_pinned, kept.used_at = grant.idle_s, grant.pinned, self._clock()
        self._kept.move_to_end(key)
        return kept

    def _trim(self) -> None:
        """Unused ones first, pinned ones last; what is in use stays."""
        over = self.ram_bytes - self._ram_bytes
        free = [(kept.is_pinned, key) for key, kept in self._kept.items() if not kept.n_using]
        for _, key in sorted(free, key=lambda one: one[0]):
            if over <= 0:
                return
            over -= self._kept[key].adapter.n_bytes
            self.counts["evicted"] += 1
            self._drop(key)

    def _drop(self, sha256: str) -> None:
        kept = self._kept.pop(sha256, None)
        if kept is not None:
            kept.adapter.forget()
