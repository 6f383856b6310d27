"""Epochs: counted by the database, which tells of nothing that fewer than k parties share; signed; everybody's."""

import time
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from backend.artifacts.signing import signing_key
from backend.blobs import put_blob
from backend.domain.canonical import sha256_hex
from backend.domain.recipes.registry.anonymity import Counted, choose_released
from backend.domain.recipes.registry.epochs import Entry, build_epoch, read_epoch
from backend.domain.recipes.shapes import SHAPE_VERSION
from backend.registry.models import Epoch

LOOK_EVERY_S = 600.0
_LOCK = 0x6B6F6C6D_65706F63  # two processes that build at once would build the same number


def newest() -> Epoch | None:
    return Epoch.objects.order_by("-number").first()


def build_due() -> int:
    """Make the next epoch where one is due: so many days after the last one, and only if its entries are others. How
    many were made. Upkeep calls this all the time; it looks every ten minutes."""
    global _next_look
    if not settings.KOLM_REGISTRY_EPOCH_DAYS or time.monotonic() < _next_look:
        return 0
    _next_look = time.monotonic() + LOOK_EVERY_S
    last = newest()
    if last and timezone.now() - last.created_at < timedelta(days=settings.KOLM_REGISTRY_EPOCH_DAYS):
        return 0
    return int(build() is not None)


_next_look = 0.0


def build() -> Epoch | None:
    """Count, sign and keep; None where nothing changed since the last epoch (and where there is nothing yet)."""
    with transaction.atomic():
        if not _is_alone():
            return None
        last = newest()
        before = read_epoch(bytes(last.data)) if last else None
        entries = choose_released(
            count_shared(settings.KOLM_REGISTRY_K),
            k=settings.KOLM_REGISTRY_K,
            margin=settings.KOLM_REGISTRY_MARGIN,
            draw=_draw,
        )
        if sorted(entries) == list(before.entries if before else ()):
            return None
        now = timezone.now()
        number = 1 if last is None else last.number + 1
        data = build_epoch(
            entries,
            number=number,
            prev=before.head_sha256 if before else "",
            k=settings.KOLM_REGISTRY_K,
            shape_version=SHAPE_VERSION,
            created_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            key=signing_key(),
        )
        epoch = read_epoch(data)
        return Epoch.objects.create(
            number=number,
            sha256=sha256_hex(data),
            merkle_root=epoch.merkle_root,
            shape_version=SHAPE_VERSION,
            k=epoch.k,
            n_entries=len(epoch.entries),
            size_bytes=len(data),
            data=data,
            created_at=now,
        )


def count_shared(k: int) -> list[Counted]:
    """Return what at least k parties share, with how many. The rows behind it are never seen: the function of the
    database runs as the owner of the tables and answers nothing else."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT shape, run, parties FROM kolm_registry_shared(%s, %s)", [k, SHAPE_VERSION])
        return [Counted(entry=Entry(shape=shape, run=run), n_parties=n) for shape, run, n in cursor.fetchall()]


def _draw(text: str) -> bytes:
    """Draw from the installation's secret: the margin of an entry is the same in every epoch, so that many epochs
    reveal no more of it than one."""
    return salted_hmac("backend.registry.margin", text, algorithm="sha256").digest()


def _is_alone() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def epoch_blob(tenant_id: UUID) -> str:
    """Put the newest epoch among the tenant's blobs, for a compile that begins with it; its sha256, under which a
    runner finds it, or "" where there is no epoch."""
    epoch = newest()
    return "" if epoch is None else put_blob(tenant_id, bytes(epoch.data))
