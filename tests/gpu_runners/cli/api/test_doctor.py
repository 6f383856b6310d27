"""`kolm doctor` against the API's answer on loopback: the list with its signs, and the exit status."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from gpu_runners.cli.main import main
from tests.compile_factories import small_spec

PASSED = {"check": "gate", "status": "passed", "sentence": "It can be passed.", "what_to_do": "", "code": ""}
OLD = {
    "check": "price",
    "status": "warning",
    "sentence": "The price is of 2025-01-01.",
    "what_to_do": "Check it.",
    "code": "old_price",
}
WRONG_KEY = {
    "check": "teacher",
    "status": "failed",
    "sentence": "The teacher m-1 at llm.example.com: it refuses the API key.",
    "what_to_do": "Store the right one.",
    "code": "wrong_key",
}


class Api(ThreadingHTTPServer):
    lines: list[dict[str, str]]
    paths: list[str]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        api = cast(Api, self.server)
        self.rfile.read(int(self.headers["Content-Length"]))
        api.paths.append(self.path)
        passed = all(line["status"] != "failed" for line in api.lines)
        body: dict[str, Any] = {"object": "spec_validation", "valid": passed, "spec": {}, "estimate": None}
        body["preflight"] = {"passed": passed, "lines": api.lines}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def far(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    api = Api(("127.0.0.1", 0), _Handler)
    api.lines, api.paths = [PASSED, OLD], []
    thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("KOLM_API_URL", f"http://127.0.0.1:{api.server_address[1]}")
    monkeypatch.setenv("KOLM_API_KEY", "sk_test")
    (home / "spec.json").write_text(json.dumps(small_spec()))
    try:
        yield api
    finally:
        api.shutdown()
        thread.join()
        api.server_close()


def test_a_compile_that_can_end_exits_with_0_and_shows_its_warnings(far: Api, capsys) -> None:
    assert main(["doctor", "spec.json"]) == 0
    out = capsys.readouterr().out
    assert "✓ gate: It can be passed." in out
    assert "! price: The price is of 2025-01-01. (old_price)\n    Check it." in out
    assert "spec.json: a compile can end, 1 warning." in out
    assert far.paths == ["/v1/specs/validate?preflight=true"]


def test_a_failed_line_exits_with_1_and_says_what_to_do(far: Api, capsys) -> None:
    far.lines = [PASSED, WRONG_KEY, OLD]
    assert main(["doctor", "spec.json"]) == 1
    out, err = capsys.readouterr()
    assert "✗ teacher: The teacher m-1 at llm.example.com: it refuses the API key. (wrong_key)" in out
    assert "    Store the right one." in out
    assert "a compile would be refused: 1 failed, 1 warning." in err


def test_the_list_is_json_on_request(far: Api, capsys) -> None:
    far.lines = [WRONG_KEY]
    assert main(["doctor", "spec.json", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"passed": False, "lines": [WRONG_KEY]}


def test_a_file_that_is_not_there_is_a_sentence(far: Api, capsys) -> None:
    assert main(["doctor", "nowhere.json"]) == 1
    assert "nowhere.json" in capsys.readouterr().err
