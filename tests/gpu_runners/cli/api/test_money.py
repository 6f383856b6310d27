"""`kolm prices`: what it asks, and what it prints."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backend.domain.money.teacher_prices import price_json, row_price
from backend.domain.money.vendor_prices import shipped_prices
from gpu_runners.cli.main import main

ROW = {**price_json(row_price(shipped_prices().rows[0], "vendor")), "object": "teacher_price", "batch_discount": "0.5"}
ANSWER = {"object": "list", "data": [ROW], "has_more": False, "next_cursor": None}
SCHEMAS = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text())["components"]["schemas"]


class _Api(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Api

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Api]:
    with _Api() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("KOLM_API_URL", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("KOLM_API_KEY", "kolm_sk_test")
        yield server
        server.shutdown()
        thread.join()


def test_the_small_api_answers_in_the_shape_of_the_real_one() -> None:
    assert set(ROW) == set(SCHEMAS["ListedPriceShape"]["properties"])


def test_the_prices_of_one_model_or_place_are_asked_for(api: _Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices"]) == 0
    assert main(["prices", "gpt-4.1", "--at", "openai"]) == 0
    assert api.requests == ["/v1/teacher_prices", "/v1/teacher_prices?model=gpt-4.1&place=openai"]
    out = capsys.readouterr().out
    assert "openai" in out
    assert str(ROW["source"]) in out


def test_the_answer_is_printed_as_it_came_with_json(api: _Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ANSWER
