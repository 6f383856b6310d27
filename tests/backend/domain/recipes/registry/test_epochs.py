"""Epochs as files: what was signed is read, everything else is refused."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.artifact.receipts import keyid, public_raw, sign_envelope
from backend.domain.canonical import canonical_json
from backend.domain.recipes.registry.epochs import (
    HEAD_TYPE,
    Entry,
    InvalidEpoch,
    build_epoch,
    prove,
    read_epoch,
    read_proof,
)
from backend.domain.recipes.shapes import SHAPE_VERSION
from tests.backend.domain.artifact.tiny_kolm import KEY, OTHER_KEY

SHAPE = "json d1 key #1 | STR : STR ,"
NAMES = ("city", "date", "kind", "name", "sum")
ENTRIES = [Entry(shape=SHAPE, run=f' "{name}": "') for name in NAMES]


def small(**changes):
    given = {
        "entries": ENTRIES,
        "number": 1,
        "prev": "",
        "k": 10,
        "shape_version": SHAPE_VERSION,
        "created_at": "2026-11-22T09:00:00Z",
        "key": KEY,
    }
    return build_epoch(**given | changes)


def keyring(key=KEY, **changes):
    raw = public_raw(key)
    entry = {
        "keyid": keyid(raw),
        "public_key": base64.b64encode(raw).decode(),
        "name": "here",
        "not_before": "2026-01-01T00:00:00Z",
        "not_after": "2028-01-01T00:00:00Z",
        "revoked_at": None,
    }
    return {"keys": [entry | changes]}


def resigned(data, key=KEY, entries=None, **changes):
    """The file with another head, signed by somebody."""
    document = json.loads(data)
    head = json.loads(base64.b64decode(document["head"]["payload"])) | changes
    document["head"] = sign_envelope(canonical_json(head), key, payload_type=HEAD_TYPE)
    if entries is not None:
        document["entries"] = entries
    return canonical_json(document)


def test_equal_entries_in_any_order_give_equal_bytes():
    assert small(entries=[*reversed(ENTRIES), ENTRIES[2]]) == small()
    assert read_epoch(small()).entries == tuple(ENTRIES)
    assert read_epoch(small(entries=[])).entries == ()


def test_a_keyring_decides_whose_epoch_it_is():
    epoch = read_epoch(small())
    assert epoch.doubts(keyring()) == ()
    assert "not in your keyring" in epoch.doubts(keyring(OTHER_KEY))[0]
    assert "revoked" in epoch.doubts(keyring(revoked_at="2026-11-23T00:00:00Z"))[0]
    assert "expired" in epoch.doubts(keyring(not_after="2026-06-01T00:00:00Z"))[0]


@given(st.data())
def test_no_byte_can_be_changed(data):
    whole = small()
    at = data.draw(st.integers(0, len(whole) - 1))
    altered = bytearray(whole)
    altered[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(InvalidEpoch):
        read_epoch(bytes(altered))


def test_entries_are_bound_by_the_root():
    rows = json.loads(small())["entries"]
    for entries in (rows[1:], [*rows[:-1], rows[0]], [*rows, {"run": ' "zip": "', "shape": SHAPE}], rows[::-1]):
        with pytest.raises(InvalidEpoch):
            read_epoch(resigned(small(), entries=entries))
    with pytest.raises(InvalidEpoch, match="Merkle root"):
        read_epoch(resigned(small(), entries=[*rows[:-1], {"run": ' "zip": "', "shape": SHAPE}]))


def test_an_epoch_with_content_is_refused_though_it_is_signed():
    """A deployment that publishes what it must not is not helped to spread it."""
    with pytest.raises(ValueError, match="more than structure"):
        small(entries=[Entry(shape=SHAPE, run=' "city": "Bern"')])
    with pytest.raises(ValueError, match="more than structure"):
        small(entries=[Entry(shape='json d1 key "city" | ,', run=' "')])


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 4},
        {"k": True},
        {"n_entries": 4},
        {"epoch": 0},
        {"prev": "x"},
        {"shape_version": "../x"},
        {"created_at": "today"},
        {"merkle_root": "0" * 64},
        {"format": "kolm-epoch/2"},
        {"more": 1},
        {"keys": []},
        {"keys": [{"keyid": "a", "public_key": "YQ=="}]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_head_that_breaks_a_rule_is_refused_though_it_is_signed(changes):
    with pytest.raises(InvalidEpoch):
        read_epoch(resigned(small(), **changes))


def test_a_head_signed_by_another_key_than_it_names_is_refused():
    with pytest.raises(InvalidEpoch):
        read_epoch(resigned(small(), key=OTHER_KEY))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"entries":[],"format":"kolm-epoch/1","head":null}',
        b'{"entries":[],"format":"kolm-epoch/1","head":{"payload":"bnVsbA=="}}',
        b"[" * 100_000,
        b" " * (1 << 20 | 1),
        b'{"entries":1.5}',
    ],
    ids=range(10),
)
def test_what_is_no_epoch_is_refused_with_one_kind_of_error(data):
    for read in (read_epoch, read_proof):
        with pytest.raises(InvalidEpoch):
            read(data)


def test_every_entry_can_be_shown_without_the_others():
    for index, entry in enumerate(ENTRIES):
        proof = prove(small(), index)
        assert len(proof["path"]) <= 3
        read = read_proof(canonical_json(proof))
        assert read.entry == entry
        assert read.doubts(keyring()) == ()
        others = " ".join(NAMES[:index] + NAMES[index + 1 :]).split()
        assert not any(name in json.dumps(proof) for name in others)


def test_a_proof_of_what_is_not_there_is_refused():
    proof = prove(small(), 1)
    for changes in (
        {"index": 2},
        {"index": -1},
        {"index": True},
        {"path": proof["path"][:-1]},
        {"path": [*proof["path"], "0" * 64]},
        {"path": ["x"]},
        {"entry": {"run": ' "zip": "', "shape": SHAPE}},
    ):
        with pytest.raises(InvalidEpoch):
            read_proof(canonical_json(proof | changes))
    with pytest.raises(IndexError):
        prove(small(), 5)
