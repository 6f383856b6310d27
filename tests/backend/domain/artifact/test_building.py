"""The builder: same inputs, same bytes, and nothing it returns fails to verify."""

import io
import random
import zipfile
from typing import Any

import pytest

from backend.domain.artifact.building import build_kolm, pack
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.artifact.receipts import keyid, public_raw
from backend.domain.canonical import canonical_json, sha256_hex
from tests.backend.domain.artifact.tiny_kolm import KEY, OTHER_KEY, fields, members, receipts, small_kolm

# A change here is a change of the format: it needs a new format number and a new verifier.
GOLDEN_SHA256 = "8368d085044f4bb12ff4898ead7a4d8228a0a0751d4669836d677df9c0eac458"


def test_two_builds_of_the_same_inputs_are_byte_identical_whatever_their_order() -> None:
    shuffled = list(members().items())
    random.Random(1).shuffle(shuffled)
    backwards = dict(reversed(fields().items()))
    assert build_kolm(dict(shuffled), manifest_fields=backwards, key=KEY) == small_kolm()


def test_the_format_has_not_changed() -> None:
    assert sha256_hex(small_kolm()) == GOLDEN_SHA256


def test_a_named_field_is_all_that_differs_between_two_times_of_building() -> None:
    later = build_kolm(members(), manifest_fields=fields(created_at="2026-11-22T06:00:00Z"), key=KEY)
    ours, theirs = read_kolm(small_kolm()), read_kolm(later)
    differing = {name for name in ours.members if ours.members[name] != theirs.members[name]}
    assert differing == {"manifest.json", "signatures.json"}
    assert {name for name in ours.manifest if ours.manifest[name] != theirs.manifest[name]} == {"created_at"}


def test_members_are_stored_in_order_with_fixed_times_and_modes() -> None:
    with zipfile.ZipFile(io.BytesIO(small_kolm())) as archive:
        entries = archive.infolist()
    names = [entry.filename for entry in entries]
    assert names == ["manifest.json", *sorted(names[1:-1]), "signatures.json"]
    assert {(e.compress_type, e.date_time, e.external_attr, e.flag_bits) for e in entries} == {
        (0, (1980, 1, 1, 0, 0, 0), 0o100644 << 16, 0)
    }


def test_the_head_is_the_digest_of_the_last_receipt() -> None:
    kolm = read_kolm(small_kolm())
    assert kolm.manifest["receipt_head"] == sha256_hex(canonical_json(kolm.receipts[-1]))
    assert kolm.signers == (keyid(public_raw(KEY)),)


def test_an_empty_member_and_a_large_one_are_fine() -> None:
    data = small_kolm(**{"notes.txt": b"", "adapter.safetensors": bytes(3_000_000)})
    assert len(read_kolm(data).members["adapter.safetensors"]) == 3_000_000


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"gate": "failed"}, "gate"),
        ({"compile": None}, "compile"),
        ({"k_score_ppm": 1_000_001}, "k_score_ppm"),
        ({"k_score_ppm": True}, "k_score_ppm"),
        ({"created_at": "2026-13-21T06:00:00Z"}, "created_at"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"base": {"id": "x"}}, "base"),
        ({"receipt_head": "0" * 64}, "receipt_head"),
        ({"name": "Refund\n"}, "name"),
        ({"score": 0.5}, "float"),
    ],
)
def test_a_manifest_that_would_not_verify_is_not_signed(changed: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        build_kolm(members(), manifest_fields=fields(**changed), key=KEY)


def test_an_artifact_needs_its_receipts_its_score_and_its_own_key() -> None:
    inner = members()
    bare = {name: data for name, data in inner.items() if not name.startswith("receipts/")}
    with pytest.raises(ValueError, match="receipts"):
        build_kolm(bare, manifest_fields=fields(), key=KEY)
    without_score = {name: data for name, data in inner.items() if name != "k_score.json"}
    with pytest.raises(ValueError, match=r"k_score\.json"):
        build_kolm(without_score, manifest_fields=fields(), key=KEY)
    with pytest.raises(ValueError, match="key_id"):
        build_kolm(inner, manifest_fields=fields(), key=KEY, key_id="0" * 64)
    with pytest.raises(ValueError, match="made by"):
        build_kolm({**inner, "manifest.json": b"{}"}, manifest_fields=fields(), key=KEY)


def test_receipts_signed_before_a_key_rotation_need_the_old_key_named() -> None:
    inner = {**members(), **receipts(key=OTHER_KEY)}
    with pytest.raises(ValueError, match="does not list"):
        build_kolm(inner, manifest_fields=fields(), key=KEY)
    data = build_kolm(inner, manifest_fields=fields(), key=KEY, other_public_keys=[public_raw(OTHER_KEY)])
    assert read_kolm(data).signers == (keyid(public_raw(KEY)), keyid(public_raw(OTHER_KEY)))


def test_a_key_that_signed_nothing_is_not_listed() -> None:
    with pytest.raises(ValueError, match="signed nothing"):
        build_kolm(members(), manifest_fields=fields(), key=KEY, other_public_keys=[public_raw(OTHER_KEY)])


def test_the_container_alone_does_not_depend_on_order() -> None:
    one = {"manifest.json": b"1", "b.json": b"2", "a.json": b"3", "signatures.json": b"4"}
    assert pack(one) == pack(dict(reversed(one.items())))
