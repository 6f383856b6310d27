"""Our signatures beside those of `standardwebhooks`, the specification's own library."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from backend.domain.webhooks.signing import (
    NotSigned,
    Scheme,
    new_secret,
    public_key,
    signature,
    signed_headers,
    verify,
)

SECRET = new_secret(Scheme.V1, bytes(range(32)))
OTHER = new_secret(Scheme.V1, bytes(range(1, 33)))
ASYMMETRIC = new_secret(Scheme.V1A, bytes(range(32)))
BODY = '{"type":"webhook.test","data":{"object":{"name":"Grüße"}}}'.encode()

seconds = st.integers(min_value=0, max_value=4_000_000_000)
ids = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789_", min_size=1, max_size=40)


@given(key=st.binary(min_size=32, max_size=32), id=ids, at=seconds, body=st.text(max_size=300))
def test_our_signature_is_the_librarys(key: bytes, id: str, at: int, body: str) -> None:
    secret = new_secret(Scheme.V1, key)
    theirs = Webhook(secret).sign(id, datetime.fromtimestamp(at, UTC), body)
    assert signature(secret, id, at, body.encode()) == theirs


@given(key=st.binary(min_size=32, max_size=32), id=ids, at=seconds, body=st.binary(max_size=300))
def test_what_was_signed_by_either_scheme_verifies_and_nothing_else(key: bytes, id: str, at: int, body: bytes) -> None:
    for scheme in Scheme:
        secret = new_secret(scheme, key)
        reader = secret if scheme is Scheme.V1 else public_key(secret)
        headers = signed_headers([secret], id, at, body)
        verify(reader, headers, body, now=at)
        for changed in (
            {**headers, "webhook-id": id + "x"},
            {**headers, "webhook-timestamp": str(at + 1)},
            {**headers, "webhook-signature": headers["webhook-signature"].replace(",", ",A", 1)},
        ):
            with pytest.raises(NotSigned):
                verify(reader, changed, body, now=at)
        with pytest.raises(NotSigned):
            verify(reader, headers, body + b" ", now=at)


def test_while_a_secret_is_rolled_the_library_takes_either() -> None:
    headers = signed_headers([OTHER, SECRET], "evt_1", int(time.time()), BODY)
    assert Webhook(SECRET).verify(BODY, headers) == Webhook(OTHER).verify(BODY, headers)


def test_the_specifications_own_asymmetric_pair_belongs_together() -> None:
    """The example keys of the Standard Webhooks document."""
    private = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
    assert public_key(private) == "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


@pytest.mark.parametrize("late", [301, -301, 86_400])
def test_a_timestamp_beyond_five_minutes_is_refused(late: int) -> None:
    headers = signed_headers([SECRET], "evt_1", 1_000_000, BODY)
    with pytest.raises(NotSigned):
        verify(SECRET, headers, BODY, now=1_000_000 + late)


@pytest.mark.parametrize(
    "signatures", ["", "v1", "v1,", "v1,%%%", "v1a,abc", "v2,abc", "abc", " ", "v1,\xff", "v1a," + "A" * 88]
)
@pytest.mark.parametrize("reader", [SECRET, public_key(ASYMMETRIC)])
def test_a_malformed_header_is_not_signed_and_no_crash(signatures: str, reader: str) -> None:
    headers = {"webhook-id": "evt_1", "webhook-timestamp": "1000", "webhook-signature": signatures}
    with pytest.raises(NotSigned):
        verify(reader, headers, BODY, now=1000)


@pytest.mark.parametrize("stamp", ["", "soon", "-5", "1e3", "٣", "9" * 40])
def test_a_malformed_timestamp_is_not_signed(stamp: str) -> None:
    headers = signed_headers([SECRET], "evt_1", 1000, BODY) | {"webhook-timestamp": stamp}
    with pytest.raises(NotSigned):
        verify(SECRET, headers, BODY, now=1000)


def test_an_id_with_a_dot_is_never_signed() -> None:
    with pytest.raises(ValueError, match="dot"):
        signature(SECRET, "evt.1", 1000, BODY)


def test_the_machines_time_zone_does_not_matter() -> None:
    """The library signs local time as if it were UTC; a sender that reads a clock must not."""
    code = (
        "import time; from backend.domain.webhooks.signing import signed_headers;"
        "from standardwebhooks import Webhook;"
        f"h = signed_headers(['{SECRET}'], 'evt_1', int(time.time()), b'{{}}'); Webhook('{SECRET}').verify(b'{{}}', h);"
        "assert time.tzname[0] == 'EST', time.tzname; print('verified')"
    )
    environ = os.environ | {"TZ": "America/New_York"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "verified", done.stderr
