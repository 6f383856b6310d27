"""The format of an API key: `sk_live_` or `sk_test_`, 30 random base62 characters, 6 characters of checksum.

The checksum (CRC-32 in base62) lets secret scanners and us tell a key from noise without asking a database.
"""

import secrets
import string
import zlib
from hashlib import sha256

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
N_RANDOM = 30
N_CHECKSUM = 6
LIVE, TEST = "sk_live_", "sk_test_"


def new_key(*, is_live: bool) -> str:
    body = (LIVE if is_live else TEST) + "".join(secrets.choice(ALPHABET) for _ in range(N_RANDOM))
    return body + checksum(body)


def is_well_formed(key: str) -> bool:
    """
    >>> is_well_formed(new_key(is_live=True)), is_well_formed("sk_live_" + "A" * 36)
    (True, False)
    """
    body, check = key[:-N_CHECKSUM], key[-N_CHECKSUM:]
    is_shaped = len(key) == len(LIVE) + N_RANDOM + N_CHECKSUM and key.startswith((LIVE, TEST)) and key.isascii()
    return is_shaped and check == checksum(body)


def checksum(body: str) -> str:
    value = zlib.crc32(body.encode("ascii"))
    digits = []
    for _ in range(N_CHECKSUM):
        value, digit = divmod(value, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def hash_of(key: str) -> str:
    """Return what is stored of a key: hex SHA-256."""
    return sha256(key.encode()).hexdigest()
