"""Changing the signing key without a moment in which a good artifact is refused.

The order is everything: the new key is published, and pinned by the runners of this machine, before anything is signed
with it; the old one's window closes when every process has had time to take the new one. Every step may be done twice,
so an interrupted rotation is gone on with by starting it again. Two at once would take each other's key file away.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.conf import settings
from django.db import connection, transaction

from backend.artifacts import signing_documents
from backend.artifacts.models import SigningKey
from backend.artifacts.signing import keyring, load_signing_key, public_raw, raw_of
from backend.domain.artifact.keyrings import merge_keyrings, parse_keys
from backend.domain.artifact.receipts import keyid
from backend.domain.errors import Conflict
from backend.rest.private_files import move, replace_private

OVERLAP = timedelta(days=1)  # for processes that still hold the old key: a Secret reaches a pod in minutes
REVOKED = "revoked: nothing it signed is trusted any more"
Say = Callable[[str], None]
_TURN = "hashtextextended('rotate_signing_key', 0)"


@contextmanager
def alone() -> Iterator[None]:
    """One rotation of a deployment at a time; the lock is its connection's and goes with it, however it ends. Raises
    Conflict while there is another."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_try_advisory_lock({_TURN})")
        if not cursor.fetchone()[0]:
            raise Conflict("Another rotation of the signing key is under way; run this again when it has ended.")
        try:
            yield
        finally:
            cursor.execute(f"SELECT pg_advisory_unlock({_TURN})")


def rotate(next_file: Path, *, leaked: str | None, say: Say) -> None:
    """All of it at once, for a key file that this process may replace. One that was interrupted after the switch is
    only finished; a leaked key that was replaced before is only revoked. Raises Conflict."""
    check_known(leaked)
    is_half_done = not next_file.exists() and signing_documents.is_half_done(public_raw())
    if leaked not in (None, keyid(public_raw())) and not is_half_done:
        revoke(str(leaked), say)
        return
    if not is_half_done:
        prepare(next_file, say)
        switch(next_file, keep_old=leaked is None, say=say)
    finish(leaked=leaked, say=say)


def prepare(next_file: Path, say: Say) -> bytes:
    """Make the next key in `next_file` (or take the one that an interrupted run left there) and publish it; its public
    half."""
    signing_documents.install(public_raw())
    if not next_file.exists():
        pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        replace_private(next_file, pem.decode())
    public = raw_of(load_signing_key(next_file))
    signing_documents.introduce(public, datetime.now(UTC))
    say(f"The new key {keyid(public)} is published; its private half is in {next_file}.")
    pin_here(say)
    return public


def switch(next_file: Path, *, keep_old: bool, say: Say) -> None:
    """Put the next key where processes read the key; the next signature of each is made with it."""
    current = Path(settings.KOLM_SIGNING_KEY_FILE)
    if keep_old:
        kept = current.with_name(f"{current.stem}.{keyid(public_raw())[:16]}{current.suffix}")
        replace_private(kept, current.read_text())
        say(f"The old key's private half is kept in {kept}; delete it when you are sure of the new one.")
    move(next_file, current)


def finish(*, leaked: str | None, say: Say) -> None:
    """Close the windows of all keys but the one in KOLM_SIGNING_KEY_FILE, and revoke the one that leaked. Raises
    Conflict where the one in the file cannot be in charge."""
    own = SigningKey.objects.filter(keyid=keyid(public_raw())).first()
    if own is None or own.revoked_at is not None:
        problem = "has no document: rotate_signing_key --prepare makes one" if own is None else "is revoked"
        raise Conflict(f"The key in KOLM_SIGNING_KEY_FILE {problem}.")
    check_known(leaked)
    if leaked == own.keyid:
        raise Conflict("The key in KOLM_SIGNING_KEY_FILE is the one that leaked: put the new one there first.")
    now = datetime.now(UTC)
    with transaction.atomic():
        closed = signing_documents.put_in_charge(public_raw(), others_until=now + OVERLAP)
        signing_documents.revoke([leaked] if leaked else [], now)
    for each in closed:
        say(f"The key {each} is {REVOKED if each == leaked else 'retired'}.")
    say(f"The key {own.keyid} signs.")
    pin_here(say)


def revoke(key: str, say: Say) -> None:
    """Take all trust from a key that signs no more."""
    signing_documents.revoke([key], datetime.now(UTC))
    say(f"The key {key} is {REVOKED}.")
    pin_here(say)


def check_known(leaked: str | None) -> None:
    """Raises Conflict for a key that is not ours, before anything is done for it."""
    if leaked is not None and leaked != keyid(public_raw()) and not SigningKey.objects.filter(keyid=leaked).exists():
        raise Conflict("There is no such key; /.well-known/kolm-keys.json lists them.")


def pin_here(say: Say) -> None:
    """Renew the keyring of the runners on this machine, where KOLM_KEYRING names one that can be written."""
    path = Path(os.environ.get("KOLM_KEYRING", ""))
    if path.is_file() and os.access(path.parent, os.W_OK):
        replace_private(path, merge_keyrings(parse_keys(path.read_bytes()), keyring()["keys"]))
        say(f"{path} has the keys as they are published now.")
