"""An OpenAI-compatible server on loopback that answers as the grammar does and counts tokens with Gemma's tokenizer: a
vendor whose usage nobody here can count beforehand."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tokenizers import Tokenizer

from tests.tiny_bases import BASES
from workers.teachers.grammar.api import chat_completion
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.grammar.model import GrammarModel

TOKENIZER = BASES / "gemma-3-270m" / "tokenizer.json"
_CHAT_TOKENS = 4  # a message's frame, as vendors document it


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.grammar = GrammarModel(shipped_grammar())
        self.tokenizer = Tokenizer.from_file(str(TOKENIZER))

    def n_tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            return self._answer(404, {"error": {"message": "no such path"}})
        answer: dict[str, Any] = chat_completion(self.server.grammar, body | {"model": "kolm-grammar-1"})
        n_in = sum(self.server.n_tokens(message["content"]) + _CHAT_TOKENS for message in body["messages"])
        n_out = sum(self.server.n_tokens(choice["message"]["content"]) + 1 for choice in answer["choices"])
        answer["usage"] = {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out}
        return self._answer(200, answer | {"model": body["model"]})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def counting_server() -> Iterator[str]:
    """Its origin."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
