"""`kolm registry`: what it asks, what it believes, and the exit codes that scripts rely on."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from backend.domain.artifact.receipts import keyid, public_raw
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.recipes.registry.epochs import Entry, build_epoch, prove, read_epoch
from gpu_runners.cli.main import main
from tests.backend.domain.artifact.tiny_kolm import KEY

SCHEMAS = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text())["components"]["schemas"]
ID = "epo_01m7ycv54jf0sa3fej7e6jfafp"
ROOT = "/v1/registry"


def epoch(number: int, *names: str, prev: str = "") -> bytes:
    entries = [Entry(shape="json d1 key #1 | STR : STR ,", run=f' "{name}": "') for name in names]
    made = {"shape_version": "kolm-shape-1", "created_at": "2026-11-22T09:00:00Z", "key": KEY}
    return build_epoch(entries, number=number, prev=prev, k=10, **made)


FIRST = epoch(1, "city")
SECOND = epoch(2, "city", "date", prev=read_epoch(FIRST).head_sha256)


def row(data: bytes) -> dict[str, Any]:
    read = read_epoch(data)
    return {
        "id": ID,
        "object": "registry_epoch",
        "epoch": read.number,
        "sha256": sha256_hex(data),
        "size_bytes": len(data),
        "merkle_root": read.merkle_root,
        "shape_version": read.shape_version,
        "k": read.k,
        "n_entries": len(read.entries),
        "created_at": read.created_at,
    }


def contribution() -> dict[str, Any]:
    made = {"shape": "json d1 key #1 | STR : STR ,", "run": ' "city": "', "shape_version": "kolm-shape-1"}
    times = {"created_at": "2026-11-22T09:00:00Z", "seen_at": "2026-11-22T09:00:00Z"}
    return {"object": "registry_contribution", **made, **times}


class RegistryApi(ThreadingHTTPServer):
    """The far side of the wire, on loopback."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[str] = []
        self.file = SECOND


class _Handler(BaseHTTPRequestHandler):
    server: RegistryApi

    def do_GET(self) -> None:
        self.server.requests.append(f"GET {self.path}")
        rows = {
            f"{ROOT}/epochs": [row(SECOND), row(FIRST) | {"id": ID[:-1] + "q"}],
            f"{ROOT}/contributions": [contribution()],
        }
        if self.path.endswith("/download"):
            self._send(200, self.server.file)
        elif self.path in rows:
            self._send(200, canonical_json({"object": "list", "data": rows[self.path]}))
        else:
            self._send(200, canonical_json(row(SECOND)))

    def do_DELETE(self) -> None:
        self.server.requests.append(f"DELETE {self.path}")
        self._send(204, b"")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryApi]:
    with RegistryApi() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        monkeypatch.setenv("KOLM_API_URL", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("KOLM_API_KEY", "kolm_sk_test")
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    raw = public_raw(KEY)
    entry = {
        "keyid": keyid(raw),
        "public_key": base64.b64encode(raw).decode(),
        "name": "here",
        "not_before": "2026-01-01T00:00:00Z",
        "not_after": "2028-01-01T00:00:00Z",
        "revoked_at": None,
    }
    path = tmp_path / "keyring.json"
    path.write_text(json.dumps({"keys": [entry]}))
    return str(path)


def test_the_small_api_answers_in_the_shapes_of_the_real_one() -> None:
    assert set(row(FIRST)) == set(SCHEMAS["EpochShape"]["properties"])
    assert set(contribution()) == set(SCHEMAS["ContributionShape"]["properties"])


def test_list_shows_the_epochs(api: RegistryApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["epoch", "made", "entries", "k", "id"]
    assert [line[0] for line in lines[1:]] == ["2", "1"]


def test_pull_verifies_what_it_writes(
    api: RegistryApi, keyring: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "epoch.json"
    assert main(["registry", "pull", "-o", str(path), "--keyring", keyring]) == 0
    assert path.read_bytes() == SECOND
    assert "trusted\n  epoch 2" in capsys.readouterr().out
    assert main(["registry", "pull", "1", "-o", str(path), "--keyring", str(tmp_path / "none.json")]) == 3
    assert "NOT TRUSTED" in capsys.readouterr().out
    assert main(["registry", "pull", "9", "-o", str(path)]) == 1


def test_pull_writes_nothing_that_was_altered(api: RegistryApi, keyring: str, tmp_path: Path) -> None:
    api.file = SECOND.replace(b"city", b"town")
    path = tmp_path / "epoch.json"
    assert main(["registry", "pull", "-o", str(path), "--keyring", keyring]) == 1
    assert not path.exists()


def test_verify_asks_nobody(tmp_path: Path, keyring: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"first": FIRST, "second": SECOND, "altered": SECOND.replace(b"date", b"dote"), "none": b"{}"}
    files["proof"] = canonical_json(prove(SECOND, 1))
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    codes = {}
    for name in files:
        codes[name] = main(["registry", "verify", str(tmp_path / name), "--keyring", keyring, "--entries"])
    assert codes == {"first": 0, "second": 0, "altered": 1, "none": 1, "proof": 0}
    told = capsys.readouterr().out
    assert 'has the entry: json d1 key #1 | STR : STR ,  →  " \\"date\\": \\""' in told
    assert main(["registry", "verify", str(tmp_path / "second"), "--keyring", str(tmp_path / "nobody")]) == 3
    assert main(["registry", "verify", str(tmp_path / "is not there")]) == 2


def test_verify_tells_whether_one_epoch_follows_another(tmp_path: Path, keyring: str) -> None:
    for name, data in (("first", FIRST), ("second", SECOND), ("other", epoch(1, "date"))):
        (tmp_path / name).write_bytes(data)
    second = ["registry", "verify", str(tmp_path / "second"), "--keyring", keyring, "--after"]
    assert main([*second, str(tmp_path / "first")]) == 0
    assert main([*second, str(tmp_path / "other")]) == 1


def test_contributions_are_shown_and_withdrawn_when_asked_twice(
    api: RegistryApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "contributions"]) == 0
    assert '" \\"city\\": \\""' in capsys.readouterr().out
    assert main(["registry", "withdraw"]) == 1, "nobody is there to answer"
    assert main(["registry", "withdraw", "--yes"]) == 0
    assert api.requests == [f"GET {ROOT}/contributions", f"DELETE {ROOT}/contributions"]
