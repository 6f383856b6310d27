"""The documents of signing keys, written as the owner of the tables: a key is installed, introduced, put in charge
(which retires the others) and revoked."""

from datetime import datetime, timedelta

from django.db import connection, transaction

from backend.artifacts.models import SigningKey
from backend.artifacts.signing import ALWAYS
from backend.domain.artifact.receipts import keyid

CLOCKS = timedelta(hours=1)  # what two machines' clocks may differ by


def install(public: bytes) -> bool:
    """Give a key that came without a document one that trusts all it ever signed; False where it has one. Written once:
    no later run moves its dates."""
    _, is_new = SigningKey.objects.get_or_create(
        keyid=keyid(public), defaults={"public_key": public, "not_before": ALWAYS}
    )
    return is_new


def introduce(public: bytes, now: datetime) -> SigningKey:
    """The document of a key that was just made. It is published from here on, before anything is signed with it; a
    process whose clock is behind signs nothing from before its time."""
    defaults = {"public_key": public, "not_before": now.replace(microsecond=0) - CLOCKS}
    return SigningKey.objects.get_or_create(keyid=keyid(public), defaults=defaults)[0]


@transaction.atomic
def put_in_charge(public: bytes, *, others_until: datetime) -> list[str]:
    """Open the window of the key that signs and close those of all others that are open, at `others_until`. The ids of
    those that were closed."""
    others = SigningKey.objects.exclude(keyid=keyid(public)).filter(not_after=None).order_by("keyid")
    closed = [document.keyid for document in others.select_for_update()]
    SigningKey.objects.filter(keyid__in=closed).update(not_after=others_until.replace(microsecond=0))
    SigningKey.objects.filter(keyid=keyid(public)).update(not_after=None)
    return closed


def is_half_done(public: bytes) -> bool:
    """Return whether the key that signs is newer than another open one: it was put into its place, and nothing was
    retired."""
    own = SigningKey.objects.filter(keyid=keyid(public)).first()
    others = SigningKey.objects.exclude(keyid=keyid(public)).filter(not_after=None)
    return own is not None and others.exists() and not others.filter(created_at__gt=own.created_at).exists()


def revoke(keyids: list[str], at: datetime) -> None:
    """Revoke keys: from here on they vouch for nothing, whatever its date. An earlier revocation keeps its time."""
    SigningKey.objects.filter(keyid__in=keyids, revoked_at=None).update(revoked_at=at.replace(microsecond=0))


def is_owner() -> bool:
    """Return whether this connection may write documents at all."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, 'INSERT')", [SigningKey._meta.db_table])
        return bool(cursor.fetchone()[0])
