"""One spelling for every JSON value that is hashed or signed: RFC 8785, the JSON Canonicalization Scheme.

Equal values give equal bytes on every machine and in every language, so a stranger can recompute each digest in an
artifact. What is signed carries no floats by convention (scores are integer parts per million, money integer
micro-USD); floats are legal here because a spec may hold them, and RFC 8785 spells them the way ECMAScript does.
"""

import hashlib
from typing import Any

import rfc8785

from backend.domain.errors import InvalidInput


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value (dict, list, tuple, str, int, float, bool, None).

    Raises InvalidInput for what JSON cannot carry: NaN and infinities, integers beyond 2**53 - 1, lone surrogates,
    other types.

    >>> canonical_json({"b": 2, "a": [1.0, "\N{EURO SIGN}"]}).decode()
    '{"a":[1,"€"],"b":2}'
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InvalidInput(f"This value has no canonical JSON form: {error}", code="not_canonical_json") from error


def sha256_hex(data: bytes) -> str:
    """64 lower-case hexadecimal characters."""
    return hashlib.sha256(data).hexdigest()


def sha256_of(value: Any) -> str:
    """The digest of a JSON value: `sha256_hex(canonical_json(value))`."""
    return sha256_hex(canonical_json(value))
