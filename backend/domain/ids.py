"""Prefixed public ids: `cmp_` + 26 Crockford base32 characters of a UUIDv7.

A UUIDv7 (RFC 9562, section 5.7) leads with 48 bits of Unix milliseconds, so ids sort by birth, index well and tell
nobody how many there are. This module only computes: the clock and the randomness come in as arguments
(`backend.rest.new_ids` has them).
"""

from enum import StrEnum
from uuid import UUID

from backend.domain.errors import NotFound

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUE = {c: i for i, c in enumerate(ALPHABET)}
N_CHARS = 26


class Prefix(StrEnum):
    TENANT = "ten"
    USER = "usr"
    MEMBER = "mem"
    API_KEY = "key"
    COMPILE = "cmp"
    SLICE = "slc"
    CANDIDATE = "cand"
    STEP = "step"
    DRAFT = "drf"
    ARTIFACT = "art"
    RECEIPT = "rcpt"
    UPLOAD = "upl"
    TEACHER_KEY = "tk"
    EVENT = "ev"
    REQUEST = "req"
    RUNNER_JOB = "job"
    USAGE = "usg"
    SELECTION = "sel"
    BUDGET = "bud"
    INVOICE = "invc"
    INVITATION = "inv"
    AUDIT_ENTRY = "aud"
    ERASURE = "era"
    PLAYGROUND_ANSWER = "pga"
    DEPLOYMENT = "dep"
    EPOCH = "epo"
    SERVER = "srv"
    WEBHOOK_ENDPOINT = "we"
    WEBHOOK_EVENT = "evt"
    WEBHOOK_DELIVERY = "whd"


def uuid7(*, unix_ms: int, random_bits: int) -> UUID:
    """RFC 9562 version 7 from a millisecond clock and at least 74 random bits.

    >>> str(uuid7(unix_ms=0x017F22E279B0, random_bits=(0xCC3 << 62) | 0x18C4DC0C0C07398F))
    '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'
    """
    rand_a = (random_bits >> 62) & 0xFFF
    rand_b = random_bits & ((1 << 62) - 1)
    return UUID(int=(unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b)


def encode_id(prefix: Prefix, value: UUID) -> str:
    """`cmp_` + 26 lower-case Crockford characters, most significant first."""
    n = value.int
    chars = [ALPHABET[(n >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(chars)}"


def decode_id(prefix: Prefix, text: str) -> UUID:
    """The UUID behind a public id. Raises NotFound for a wrong prefix, length or character: an id that cannot exist is
    an object that does not exist."""
    head, _, body = text.partition("_")
    if head != prefix or len(body) != N_CHARS or any(c not in _VALUE for c in body) or _VALUE[body[0]] > 7:
        raise NotFound(f"There is no such {prefix.name.lower().replace('_', ' ')}: {text[:60]!r}.")
    n = 0
    for c in body:
        n = n << 5 | _VALUE[c]
    return UUID(int=n)
