"""Nothing that differs from what was signed is accepted, whatever was changed and however well it is repacked."""

import base64
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.artifact import kolm_verify
from backend.domain.artifact.building import build_kolm, pack
from backend.domain.artifact.kolm_verify import Altered, NotAnArtifact, Untrusted, load_verified, read_kolm, verify
from backend.domain.artifact.receipts import public_raw, sign_envelope
from backend.domain.canonical import canonical_json, sha256_hex
from tests.backend.domain.artifact.tiny_kolm import (
    COMPILE,
    KEY,
    OTHER_KEY,
    STEPS,
    fields,
    forge,
    key_entry,
    keyring,
    listing,
    members,
    receipts,
    small_kolm,
)
from tests.profiles import IS_FULL

VERIFIER = Path(kolm_verify.__file__)


@pytest.fixture(scope="module")
def kolm() -> bytes:
    return small_kolm()


def opened(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(manifest, all members) without any check."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(content["manifest.json"]), content


def test_an_untouched_artifact_is_trusted_by_who_pins_its_key(kolm: bytes) -> None:
    verdict = verify(kolm, keyring())
    assert (verdict.exit_code, verdict.status, verdict.reasons) == (0, "trusted", ())
    assert verdict.manifest is not None
    assert verdict.manifest["k_score_ppm"] == 912_345


def test_flipping_any_byte_of_the_file_is_never_accepted(kolm: bytes) -> None:
    pinned = keyring()
    for at in range(len(kolm)):
        for mask in (0xFF, 1 << at % 8):
            altered = bytearray(kolm)
            altered[at] ^= mask
            verdict = verify(bytes(altered), pinned)
            assert verdict.exit_code in (1, 2), (at, mask)
            assert verdict.reasons
            assert verdict.manifest is None


def test_flipping_any_byte_of_any_member_is_refused_also_when_the_container_is_rebuilt(kolm: bytes) -> None:
    """The checksums of the zip are right here: what is tested are the digests, canonical forms and signatures."""
    _, content = opened(kolm)
    pinned = keyring()
    for name, data in content.items():
        for at in range(0, len(data), 1 if IS_FULL else 7):
            altered = bytearray(data)
            altered[at] ^= 1 << at % 8
            assert verify(pack({**content, name: bytes(altered)}), pinned).exit_code == 1, (name, at)


def test_flipping_a_byte_and_repairing_every_digest_still_breaks_the_signature(kolm: bytes) -> None:
    manifest, content = opened(kolm)
    inner = {name: data for name, data in content.items() if name not in ("manifest.json", "signatures.json")}
    for name in inner:
        altered = {**inner, name: inner[name][:-2] + bytes([inner[name][-2] ^ 1]) + inner[name][-1:]}
        repaired = {**altered, "signatures.json": content["signatures.json"]}
        repaired["manifest.json"] = canonical_json({**manifest, "members": listing(altered)})
        assert verify(pack(repaired), keyring()).exit_code == 1, name


@given(cut=st.integers(min_value=0), tail=st.binary(max_size=40))
def test_cutting_the_file_or_adding_to_it_is_never_accepted(kolm: bytes, cut: int, tail: bytes) -> None:
    altered = kolm[: cut % (len(kolm) + 1)] + tail
    if altered != kolm:
        assert verify(altered, keyring()).exit_code in (1, 2)


@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_are_a_verdict_and_never_an_exception(data: bytes) -> None:
    assert verify(data, keyring()).exit_code == 2
    start = small_kolm()[:43]
    assert verify(start + data, keyring()).exit_code == 1


@pytest.mark.parametrize("name", ["extra.json", "receipts/03-gate.dsse.json", "a/b.txt"])
def test_an_added_member_is_refused(kolm: bytes, name: str) -> None:
    _, content = opened(kolm)
    assert verify(pack({**content, name: b"{}"}), keyring()).exit_code == 1


def test_a_removed_member_is_refused(kolm: bytes) -> None:
    _, content = opened(kolm)
    for name in content:
        with_out = {other: data for other, data in content.items() if other != name}
        if name in ("manifest.json", "signatures.json"):
            with pytest.raises(KeyError):
                pack(with_out)
            continue
        assert verify(pack(with_out), keyring()).exit_code == 1, name


def test_a_renamed_member_is_refused(kolm: bytes) -> None:
    _, content = opened(kolm)
    for name in [n for n in content if n not in ("manifest.json", "signatures.json")]:
        renamed = {(f"x{other}" if other == name else other): data for other, data in content.items()}
        assert verify(pack(renamed), keyring()).exit_code == 1, name


def zipped(entries: list[tuple[zipfile.ZipInfo | str, bytes]], *, method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip as another tool would write it."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.filterwarnings("ignore", message="Duplicate name")
        for name, data in entries:
            archive.writestr(name, data)
    return out.getvalue()


def info(name: str, *, attributes: int = 0o100644 << 16, method: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr, entry.compress_type = attributes, method
    return entry


def entries_of(kolm: bytes) -> list[tuple[zipfile.ZipInfo | str, bytes]]:
    return [(info(name), data) for name, data in opened(kolm)[1].items()]


def test_a_standard_zip_tool_reads_and_even_writes_the_container(kolm: bytes) -> None:
    assert zipped(entries_of(kolm)) == kolm
    with zipfile.ZipFile(io.BytesIO(kolm)) as archive:
        assert archive.testzip() is None


def test_reordered_members_are_refused(kolm: bytes) -> None:
    entries = entries_of(kolm)
    for i in range(len(entries) - 1):
        swapped = [*entries[:i], entries[i + 1], entries[i], *entries[i + 2 :]]
        assert verify(zipped(swapped), keyring()).exit_code in (1, 2)


def raw_zip(entries: list[tuple[str, bytes]]) -> bytes:
    """The prescribed bytes for entries in any order and number, repeats included."""
    out, directory = b"", []
    for name, data in entries:
        directory.append((name, zlib.crc32(data), len(data), len(out)))
        out += kolm_verify.local_header(name, data) + data
    return out + kolm_verify.central_directory(directory)


def test_a_duplicated_member_is_refused(kolm: bytes) -> None:
    """Readers differ in which of two they take: one could verify the first and another run the second."""
    entries = list(opened(kolm)[1].items())
    assert raw_zip(entries) == kolm
    for i, (name, data) in enumerate(entries):
        for twin in (data, b"evil"):
            assert verify(raw_zip([*entries[:i], (name, twin), *entries[i:]]), keyring()).exit_code == 1
            assert verify(raw_zip([*entries[: i + 1], (name, twin), *entries[i + 1 :]]), keyring()).exit_code == 1


def test_a_symlink_is_refused(kolm: bytes) -> None:
    entries = entries_of(kolm)
    entries[1] = (info("adapter.safetensors", attributes=0o120777 << 16), entries[1][1])
    assert verify(zipped(entries), keyring()).exit_code == 1


def test_a_compressed_member_is_refused_unread(kolm: bytes) -> None:
    entries = entries_of(kolm)
    bomb = (info("adapter.safetensors", method=zipfile.ZIP_DEFLATED), b"\0" * 50_000_000)
    verdict = verify(zipped([entries[0], bomb, *entries[2:]]), keyring())
    assert verdict.exit_code == 1
    assert "compressed" in verdict.reasons[0]


def test_a_zip_bomb_that_is_no_artifact_is_not_an_artifact() -> None:
    bomb = zipped([("a.txt", b"\0" * 50_000_000)], method=zipfile.ZIP_DEFLATED)
    assert verify(bomb, None).exit_code == 2


HOSTILE_NAMES = [
    "../evil.json",
    "a/../../evil.json",
    "/etc/evil.json",
    "C:/evil.json",
    "a\\evil.json",
    "./a.json",
    "a//b.json",
    ".hidden.json",
    "é.json",
    "evil.json\x01.json",
    "model.pkl",
    "model.bin",
    "run.py",
    "x" * 251 + ".json",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_refused_even_when_signed(name: str, kolm: bytes) -> None:
    """The signer is trusted here: a stolen pipeline must not reach a loader's file system either."""
    inner = members()
    inner[name] = b"{}"
    raw = name.encode()
    data = zipped([(info("manifest.json"), opened(kolm)[1]["manifest.json"]), (info(name), b"{}")])
    verdict = verify(data, keyring())
    assert verdict.exit_code == 1
    if raw.isascii():
        assert "name" in verdict.reasons[0] or "suffix" in verdict.reasons[0], verdict.reasons
        with pytest.raises(ValueError):
            build_kolm(inner, manifest_fields=fields(), key=KEY)


def test_a_nul_in_a_name_is_refused(kolm: bytes) -> None:
    entries = entries_of(kolm)
    data = zipped(entries).replace(b"labels.json", b"label\0.json")
    assert verify(data, keyring()).exit_code == 1


def test_names_that_fall_together_without_case_or_as_folders_are_refused() -> None:
    for extra in ("Labels.json", "labels.json/x.json"):
        with pytest.raises(ValueError, match=r"fall together|folder"):
            build_kolm({**members(), extra: b"{}"}, manifest_fields=fields(), key=KEY)


def test_a_million_entries_end_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kolm_verify, "MAX_MEMBERS", 50)
    data = pack({"manifest.json": b"{}", "signatures.json": b"{}", **{f"m{i:04d}.json": b"" for i in range(60)}})
    verdict = verify(data, None)
    assert verdict.exit_code == 1
    assert "more than 50" in verdict.reasons[0]


def test_a_file_over_the_size_cap_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.kolm"
    with path.open("wb") as file:
        file.truncate(kolm_verify.MAX_FILE + 1)  # sparse
    with pytest.raises(Altered, match="larger"):
        load_verified(path, keyring())


# --- forgeries by somebody with a key of their own -----------------------------------------------------------------


def test_signing_again_with_another_key_is_intact_but_untrusted() -> None:
    inner = {**members(), **receipts(key=OTHER_KEY)}
    data = build_kolm(inner, manifest_fields=fields(), key=OTHER_KEY)
    verdict = verify(data, keyring())
    assert verdict.exit_code == 3
    assert verdict.reasons[0].startswith("unknown key")


def test_a_manifest_signed_by_another_key_over_trusted_receipts_is_untrusted() -> None:
    data = build_kolm(members(), manifest_fields=fields(), key=OTHER_KEY, other_public_keys=[public_raw(KEY)])
    assert verify(data, keyring()).exit_code == 3
    assert verify(data, {"keys": keyring()["keys"] + keyring(OTHER_KEY)["keys"]}).exit_code == 0


def test_receipts_by_an_unknown_key_under_a_trusted_manifest_are_untrusted() -> None:
    inner = {**members(), **receipts(key=OTHER_KEY)}
    data = build_kolm(inner, manifest_fields=fields(), key=KEY, other_public_keys=[public_raw(OTHER_KEY)])
    assert verify(data, keyring()).exit_code == 3


def test_listing_the_trusted_key_beside_ones_own_does_not_help(kolm: bytes) -> None:
    manifest, content = opened(kolm)
    inner = {name: data for name, data in content.items() if name not in ("manifest.json", "signatures.json")}
    inner["labels.json"] = canonical_json(["evil"])
    forged = {**manifest, "members": listing(inner), "keys": [key_entry(KEY), key_entry(OTHER_KEY)]}
    assert verify(forge(forged, inner, OTHER_KEY), keyring()).exit_code == 3


def test_a_key_cannot_be_listed_under_another_keys_id(kolm: bytes) -> None:
    trusted_id = key_entry(KEY)["keyid"]
    chain = receipts(key=OTHER_KEY)
    renamed = {
        p: data.replace(key_entry(OTHER_KEY)["keyid"].encode(), trusted_id.encode()) for p, data in chain.items()
    }
    inner = {**members(), **renamed}
    manifest, _ = opened(kolm)
    impostor = {**key_entry(OTHER_KEY), "keyid": trusted_id}
    signed = canonical_json({**manifest, "members": listing(inner), "keys": [impostor]})
    envelope = sign_envelope(signed, OTHER_KEY, payload_type=kolm_verify.MANIFEST_TYPE)
    envelope["signatures"][0]["keyid"] = trusted_id
    data = pack({**inner, "manifest.json": signed, "signatures.json": canonical_json(envelope)})
    verdict = verify(data, keyring())
    assert verdict.exit_code == 1
    assert "keyid" in verdict.reasons[0]


def test_a_signed_manifest_in_another_spelling_is_refused(kolm: bytes) -> None:
    """Even by the trusted key: two spellings of one manifest would be two files with one meaning."""
    manifest, content = opened(kolm)
    twice = content["manifest.json"].replace(b'{"base"', b'{"name":"evil","base"', 1)
    for spelled in (json.dumps(manifest).encode(), content["manifest.json"] + b"\n", twice):
        envelope = sign_envelope(spelled, KEY, payload_type=kolm_verify.MANIFEST_TYPE)
        data = pack({**content, "manifest.json": spelled, "signatures.json": canonical_json(envelope)})
        verdict = verify(data, keyring())
        assert verdict.exit_code == 1
        assert "canonical" in verdict.reasons[0]


def test_a_signature_in_another_base64_spelling_is_refused(kolm: bytes) -> None:
    """The last character before the padding carries unused bits: other bytes in the file, the same signature."""
    _, content = opened(kolm)
    envelope = json.loads(content["signatures.json"])
    text = envelope["signatures"][0]["sig"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    respelled = text[:-3] + alphabet[alphabet.index(text[-3]) ^ 1] + "=="
    assert base64.b64decode(respelled) == base64.b64decode(text)
    for spelled in (respelled, text[:-1], text + "\n", text.replace("=", ""), [text]):
        envelope["signatures"][0]["sig"] = spelled
        assert verify(pack({**content, "signatures.json": canonical_json(envelope)}), keyring()).exit_code == 1


def test_a_chain_with_a_broken_link_is_refused_even_when_every_receipt_is_signed(kolm: bytes) -> None:
    manifest, content = opened(kolm)
    inner = {name: data for name, data in content.items() if name not in ("manifest.json", "signatures.json")}
    path = "receipts/01-synthesis.dsse.json"
    statement = json.loads(base64.b64decode(json.loads(inner[path])["payload"]))
    for prev in ("", "0" * 64, None):
        statement["predicate"]["prev"] = prev
        inner[path] = canonical_json(sign_envelope(canonical_json(statement), KEY))
        verdict = verify(forge({**manifest, "members": listing(inner)}, inner, KEY), keyring())
        assert verdict.exit_code == 1
        assert "does not follow" in verdict.reasons[0]


def test_editing_the_k_score_and_repairing_the_digests_is_refused(kolm: bytes) -> None:
    manifest, content = opened(kolm)
    inner = {name: data for name, data in content.items() if name not in ("manifest.json", "signatures.json")}
    inner["k_score.json"] = canonical_json({"composite_ppm": 999_999})
    edited = {**manifest, "k_score_ppm": 999_999, "members": listing(inner)}
    data = pack({**inner, "manifest.json": canonical_json(edited), "signatures.json": content["signatures.json"]})
    assert verify(data, keyring()).exit_code == 1


def test_a_cover_that_disagrees_with_the_inside_is_not_built_and_not_accepted(kolm: bytes) -> None:
    with pytest.raises(ValueError, match="different K-scores"):
        build_kolm(members(), manifest_fields=fields(k_score_ppm=999_999), key=KEY)
    with pytest.raises(ValueError, match="gate"):
        small_kolm(**{"gate.json": canonical_json({"passed": False})})
    manifest, content = opened(kolm)
    inner = {name: data for name, data in content.items() if name not in ("manifest.json", "signatures.json")}
    assert verify(forge({**manifest, "k_score_ppm": 1}, inner, KEY), keyring()).exit_code == 1


def test_swapping_receipts_between_two_artifacts_is_refused() -> None:
    other_id = COMPILE[:-1] + "c"
    foreign = receipts(compile_id=other_id)
    inner = members()
    for path, envelope in foreign.items():
        mixed = {**inner, path: envelope}
        manifest = {**fields(), "format": "kolm/1", "keys": [key_entry(KEY)], "members": listing(mixed)}
        for head in (sha256_hex(base64.b64decode(json.loads(mixed[p])["payload"])) for p in foreign):
            assert verify(forge({**manifest, "receipt_head": head}, mixed, KEY), keyring()).exit_code == 1
    with pytest.raises(ValueError, match="another compile"):
        build_kolm({**inner, **foreign}, manifest_fields=fields(), key=KEY)


def test_dropping_reordering_renaming_or_replaying_receipts_is_refused() -> None:
    inner, paths = members(), list(receipts())
    without = {name: data for name, data in inner.items() if not name.startswith("receipts/")}
    chains = {
        "first dropped": {paths[1]: inner[paths[1]], paths[2]: inner[paths[2]]},
        "last dropped and head kept": {paths[0]: inner[paths[0]], paths[1]: inner[paths[1]]},
        "middle replayed": {**receipts(), "receipts/03-labeling.dsse.json": inner[paths[1]]},
        "two exchanged": {paths[0]: inner[paths[1]], paths[1]: inner[paths[0]], paths[2]: inner[paths[2]]},
        "renamed step": {**{p: inner[p] for p in paths[:2]}, "receipts/02-gate.dsse.json": inner[paths[2]]},
        "none": {},
    }
    head = sha256_hex(base64.b64decode(json.loads(inner[paths[2]])["payload"]))
    for what, chain in chains.items():
        mixed = {**without, **chain}
        manifest = {
            **fields(),
            "format": "kolm/1",
            "keys": [key_entry(KEY)],
            "members": listing(mixed),
            "receipt_head": head,
        }
        assert verify(forge(manifest, mixed, KEY), keyring()).exit_code == 1, what


def test_a_signature_for_one_payload_type_is_none_for_another(kolm: bytes) -> None:
    """A receipt's signature must not pass for a manifest's, nor the reverse."""
    manifest, content = opened(kolm)
    signed = canonical_json(manifest)
    wrong = canonical_json({**sign_envelope(signed, KEY), "payloadType": kolm_verify.MANIFEST_TYPE})
    assert verify(pack({**content, "signatures.json": wrong}), keyring()).exit_code == 1


@pytest.mark.parametrize(
    "manifest",
    [
        b'{"a":1,"a":1}',
        b'{"a":1.0}',
        b'{"a":NaN}',
        b'{"b":1,"a":1}',
        b'{"a": 1}',
        b"[]",
        b'{"a":9007199254740993}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\u0041"}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_a_manifest_that_is_not_canonical_is_refused(kolm: bytes, manifest: bytes) -> None:
    _, content = opened(kolm)
    verdict = verify(pack({**content, "manifest.json": manifest}), keyring())
    assert verdict.exit_code == 1
    assert "manifest.json" in verdict.reasons[0] or "document" in verdict.reasons[0]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=json_values)
def test_the_verifiers_canonical_form_is_rfc_8785(value: Any) -> None:
    assert kolm_verify.canonical(value) == canonical_json(value)


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"revoked_at": "2026-12-01T00:00:00Z"}, "revoked"),
        ({"revoked_at": "2026-01-02T00:00:00Z"}, "revoked"),
        ({"not_after": "2026-11-21T05:59:59Z"}, "expired"),
        ({"not_before": "2026-11-21T06:00:01Z"}, "not valid yet"),
        ({"not_after": None}, "unknown"),
        ({"not_after": "never"}, "unknown"),
        ({"public_key": base64.b64encode(bytes(32)).decode()}, "unknown"),
        ({"keyid": "0" * 64}, "unknown"),
    ],
)
def test_a_key_that_is_not_good_leaves_the_file_intact_but_untrusted(
    kolm: bytes, changed: dict[str, Any], word: str
) -> None:
    verdict = verify(kolm, keyring(**changed))
    assert verdict.exit_code == 3
    assert word in verdict.reasons[0]
    assert verdict.manifest is not None


@pytest.mark.parametrize("ring", [None, {}, {"keys": None}, {"keys": ["x", None, 3]}, {"keys": []}])
def test_an_empty_or_odd_keyring_trusts_nobody(kolm: bytes, ring: Any) -> None:
    assert verify(kolm, ring).exit_code == 3


def test_one_key_listed_twice_is_not_trusted(kolm: bytes) -> None:
    good, revoked = keyring()["keys"], keyring(revoked_at="2026-01-01T00:00:00Z")["keys"]
    assert verify(kolm, {"keys": good + revoked}).exit_code == 3
    assert verify(kolm, {"keys": revoked + good}).exit_code == 3


# --- the loader -----------------------------------------------------------------------------------------------------


def test_the_loader_hands_out_members_of_a_trusted_file_only(kolm: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.kolm"
    path.write_bytes(kolm)
    assert load_verified(path, keyring()).members["adapter.safetensors"] == bytes(range(64))
    assert dict(load_verified(kolm, keyring()).members) == opened(kolm)[1]
    with pytest.raises(Untrusted, match="unknown key"):
        load_verified(kolm, None)
    assert load_verified(kolm, None, allow_untrusted=True).manifest["name"] == "refund-router"
    with pytest.raises(Altered):
        load_verified(kolm[:-1], None, allow_untrusted=True)
    with pytest.raises(NotAnArtifact):
        load_verified(tmp_path, keyring())
    assert [r["predicate"]["step"] for r in read_kolm(kolm).receipts] == list(STEPS)


# --- the script -----------------------------------------------------------------------------------------------------

RUN_ALONE = """
import sys, runpy
allowed = set(sys.stdlib_module_names) | {"cryptography", "_cffi_backend", "cffi", "typing_extensions", "__main__"}
class OnlyThese:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in allowed:
            raise ImportError("the verifier imported " + name)
sys.meta_path.insert(0, OnlyThese())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_script(tmp_path: Path, data: bytes | None, ring: object, *options: str) -> subprocess.CompletedProcess[str]:
    """The verifier copied to an empty directory, with nothing importable but the standard library and cryptography."""
    script, file, pinned = tmp_path / "kolm_verify.py", tmp_path / "a.kolm", tmp_path / "keyring.json"
    script.write_bytes(VERIFIER.read_bytes())
    if data is not None:
        file.write_bytes(data)
    if ring is not None:
        pinned.write_text(json.dumps(ring))
    command = [sys.executable, "-I", "-c", RUN_ALONE, str(script), str(file), "--keyring", str(pinned), *options]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=60, env={"PATH": os.environ["PATH"]}, check=False
    )


def test_the_script_alone_tells_the_four_verdicts_apart(kolm: bytes, tmp_path: Path) -> None:
    trusted = run_script(tmp_path, kolm, keyring(), "--json")
    assert trusted.returncode == 0, trusted.stderr
    assert json.loads(trusted.stdout)["status"] == "trusted"
    revoked = run_script(tmp_path, kolm, keyring(revoked_at="2026-11-22T00:00:00Z"))
    assert (revoked.returncode, "revoked" in revoked.stdout) == (3, True)
    assert run_script(tmp_path, kolm[:-1] + b"x", keyring()).returncode == 1
    assert run_script(tmp_path, b"hello", keyring()).returncode == 2


def test_the_script_says_when_there_is_no_keyring_or_no_file(kolm: bytes, tmp_path: Path) -> None:
    no_keyring = run_script(tmp_path, kolm, None)
    assert no_keyring.returncode == 3
    assert "no keyring" in no_keyring.stdout
    (tmp_path / "a.kolm").unlink()
    assert run_script(tmp_path, None, keyring()).returncode == 2


def test_text_from_the_file_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, pinned = tmp_path / "a.kolm", tmp_path / "k.json"
    path.write_bytes(small_kolm())
    pinned.write_text(json.dumps(keyring(name="\x1b[2Jtrusted", not_after="2026-01-02T00:00:00Z")))
    assert kolm_verify.main([str(path), "--keyring", str(pinned)]) == 3
    assert "\x1b" not in capsys.readouterr().out
