"""Receipts are in-toto statements in DSSE envelopes that other people's tools read too."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from backend.domain.artifact.kolm_verify import STATEMENT_TYPE, Altered, open_envelope, pae
from backend.domain.artifact.receipts import keyid, payload_of, public_raw, refuse_floats, sign_envelope, step_statement
from backend.domain.canonical import canonical_json, sha256_hex
from tests.backend.domain.artifact.tiny_kolm import KEY, OTHER_KEY, receipts


def theirs(key: Ed25519PrivateKey) -> SSlibKey:
    raw = public_raw(key)
    return SSlibKey(keyid(raw), "ed25519", "ed25519", {"public": raw.hex()})


def statement(**changed: object) -> dict[str, object]:
    given: dict[str, object] = {
        "compile": "cmp_1",
        "step": "slicing",
        "seq": 0,
        "prev": "",
        "inputs": {},
        "outputs": {"b": "b" * 64, "a": "a" * 64},
        "cost_microusd": 5,
        "started_at": "2026-11-21T06:00:00Z",
        "ended_at": "2026-11-21T06:00:01Z",
        **changed,
    }
    return step_statement(**given)  # type: ignore[arg-type]


def test_securesystemslib_accepts_our_envelopes() -> None:
    for data in receipts().values():
        envelope = Envelope.from_dict(json.loads(data))
        assert list(envelope.verify([theirs(KEY)], 1)) == [keyid(public_raw(KEY))]
        with pytest.raises(VerificationError):
            envelope.verify([theirs(OTHER_KEY)], 1)


def test_we_accept_securesystemslibs_envelopes() -> None:
    payload = canonical_json(statement())
    envelope = Envelope(payload, STATEMENT_TYPE, {})
    envelope.sign(CryptoSigner(KEY, theirs(KEY)))
    data = canonical_json(envelope.to_dict())
    raw = public_raw(KEY)
    assert open_envelope(data, STATEMENT_TYPE, {keyid(raw): raw}, "it") == (payload, [keyid(raw)])


def test_the_pre_authentication_encoding_is_that_of_the_dsse_specification() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_an_envelope_of_another_type_or_key_is_refused() -> None:
    payload, raw = canonical_json(statement()), public_raw(KEY)
    data = canonical_json(sign_envelope(payload, KEY))
    with pytest.raises(Altered, match="type"):
        open_envelope(data, "application/json", {keyid(raw): raw}, "it")
    with pytest.raises(Altered, match="does not list"):
        open_envelope(data, STATEMENT_TYPE, {}, "it")
    with pytest.raises(Altered, match="does not belong"):
        open_envelope(data, STATEMENT_TYPE, {keyid(raw): public_raw(OTHER_KEY)}, "it")


def test_one_bad_signature_beside_a_good_one_is_refused() -> None:
    payload, ours, other = canonical_json(statement()), sign_envelope(b"x", OTHER_KEY), {}
    good = sign_envelope(payload, KEY)
    other = {**good, "signatures": good["signatures"] + ours["signatures"]}
    keys = {keyid(public_raw(key)): public_raw(key) for key in (KEY, OTHER_KEY)}
    with pytest.raises(Altered, match="does not belong"):
        open_envelope(canonical_json(other), STATEMENT_TYPE, keys, "it")


def test_signing_is_deterministic() -> None:
    assert sign_envelope(b"payload", KEY) == sign_envelope(b"payload", KEY)
    assert payload_of(sign_envelope(b"payload", KEY)) == b"payload"


def test_the_outputs_are_the_subjects_in_order() -> None:
    value = statement()
    assert value["subject"] == [{"name": n, "digest": {"sha256": n * 64}} for n in "ab"]
    assert value["_type"] == "https://in-toto.io/Statement/v1"


def test_a_step_without_outputs_still_has_a_subject() -> None:
    assert statement(outputs={}, inputs={"spec": "c" * 64})["subject"] == [
        {"name": "spec", "digest": {"sha256": "c" * 64}}
    ]
    assert statement(outputs={})["subject"] == [{"name": "cmp_1", "digest": {"sha256": sha256_hex(b"cmp_1")}}]


@pytest.mark.parametrize(
    "changed",
    [
        {"seq": 1},
        {"prev": "a" * 64},
        {"seq": 1, "prev": "abc"},
        {"seq": -1, "prev": "a" * 64},
        {"outputs": {"a": "not a digest"}},
        {"facts": {"rate": 0.5}},
        {"facts": {"rows": [{"rate": 0.5}]}},
        {"teacher": {"usd": 1.0}},
    ],
)
def test_a_statement_that_could_not_be_checked_is_not_made(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        statement(**changed)


def test_the_place_of_a_float_is_named() -> None:
    with pytest.raises(ValueError, match="/a/1/b"):
        refuse_floats({"a": [1, {"b": 0.5}]})
