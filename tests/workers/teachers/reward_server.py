"""vLLM serving a reward model, on loopback and as strict as its source is: what it does not know of a request is
ignored, another model is a 404, a wrong key a 401, and a conversation that does not alternate a 400. It answers with
what `numbers` gives for a candidate, in the shape of the path that was asked.

Shapes: vllm/entrypoints/pooling/{classify,pooling,scoring}/protocol.py of vllm-project/vllm, as stored on 2026-11-26.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Numbers = Callable[[str], Any]
MODEL = "Skywork/Skywork-Reward-V2-Qwen3-0.6B"


@dataclass(slots=True)
class RewardServer:
    """`asked` are (path, body) of the answered requests. `key` is the key it wants, if any."""

    numbers: Numbers
    key: str | None = None
    base_url: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, key: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        if self.key is not None and key != f"Bearer {self.key}":
            return 401, {"error": "Unauthorized"}
        if body.get("model") != MODEL:
            return 404, _error(f"The model `{body.get('model')}` does not exist.", 404)
        shapes = {"/classify": _classified, "/pooling": _pooled, "/score": _scored, "/v1/rerank": _reranked}
        if path not in shapes:
            return 404, {"detail": "Not Found"}
        text = _candidate(path, body)
        if text is None:
            return 400, _error("Conversation roles must alternate user/assistant/user/assistant/...", 400)
        with self.guard:
            self.asked.append((path, body))
        n = len(json.dumps(body)) // 4
        usage = {"prompt_tokens": n, "total_tokens": n, "completion_tokens": 0, "prompt_tokens_details": None}
        return 200, {"id": "x-1", "object": "list", "model": MODEL, "usage": usage} | shapes[path](self.numbers(text))


def _candidate(path: str, body: Mapping[str, Any]) -> str | None:
    if path in ("/classify", "/pooling"):
        roles = [message["role"] for message in body["messages"]]
        return body["messages"][-1]["content"] if roles == ["user", "assistant"] else None
    return body["text_2"][0] if path == "/score" else body["documents"][0]


def _error(message: str, code: int) -> Any:
    return {"error": {"message": message, "type": "NotFoundError", "param": None, "code": code}}


def _classified(number: Any) -> Any:
    return {"data": [{"index": 0, "label": None, "probs": [number], "num_classes": 1}]}


def _pooled(number: Any) -> Any:
    return {"data": [{"index": 0, "object": "pooling", "data": [[0.0], [number]]}]}


def _scored(number: Any) -> Any:
    return {"data": [{"index": 0, "object": "score", "score": number}]}


def _reranked(number: Any) -> Any:
    return {"results": [{"index": 0, "document": {"text": ""}, "relevance_score": number}]}


@contextlib.contextmanager
def serving_rewards(numbers: Numbers, *, key: str | None = None) -> Iterator[RewardServer]:
    """A running server for the length of the block."""
    rewards = RewardServer(numbers, key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, value = rewards.answer(self.path, self.headers.get("authorization"), body)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="reward-server")
    thread.start()
    rewards.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield rewards
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
