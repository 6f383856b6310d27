"""Servers of reward models on loopback, each as strict as its source is. They answer with what `numbers` gives for a
candidate, in the shape of the path that was asked.

vllm: what it does not know of a request is ignored, another model is a 404, a wrong key a 401, and a conversation that
does not alternate a 400 (vllm/entrypoints/pooling/{classify,pooling,scoring}/protocol.py of vllm-project/vllm).
sglang: its /v1/rerank alone; no model is read, an empty text is a 400 (entrypoints/openai/{serving_rerank,protocol}.py
of sgl-project/sglang). tei: text-embeddings-inference's /rerank; no model is read, a lacking field is a 422 in plain
text, no texts a 413, a wrong key a 401 without a word (router/src/http/{server,types}.rs). All as stored on 2026-11-26.
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
    """`asked` are (path, body) of the answered requests. `key` is the key it wants, if any; `speaks` whose server it
    stands for."""

    numbers: Numbers
    key: str | None = None
    speaks: str = "vllm"
    base_url: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, key: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        if self.key is not None and key != f"Bearer {self.key}":
            return 401, "" if self.speaks == "tei" else {"error": "Unauthorized"}
        if self.speaks != "vllm":
            refusal = _sglang_refuses(path, body) if self.speaks == "sglang" else _tei_refuses(path, body)
            if refusal is not None:
                return refusal
            with self.guard:
                self.asked.append((path, body))
            return 200, _ranked(body, self.numbers)
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


def _sglang_refuses(path: str, body: Mapping[str, Any]) -> tuple[int, Any] | None:
    if path != "/v1/rerank":
        return 404, {"detail": "Not Found"}
    if not isinstance(body.get("query"), str) or not isinstance(body.get("documents"), list):
        return 422, {"detail": [{"type": "missing", "loc": ["body"], "msg": "Field required"}]}
    if not all(text.strip() for text in (body["query"], *body["documents"])):
        return 400, _error("Each document cannot be empty or whitespace only", 400)
    return None


def _tei_refuses(path: str, body: Mapping[str, Any]) -> tuple[int, Any] | None:
    if path != "/rerank":
        return 404, ""
    for name, kind in (("query", str), ("texts", list)):
        if not isinstance(body.get(name), kind):
            return 422, f"Failed to deserialize the JSON body into the target type: missing field `{name}`"
    if not body["texts"]:
        return 413, {"error": "`texts` cannot be empty", "error_type": "validation"}
    return None


def _ranked(body: Mapping[str, Any], numbers: Numbers) -> Any:
    """Both rank best first and give a text back where they are asked to; only SGLang does that unasked."""
    texts = body.get("documents") or body["texts"]
    wants_text = body.get("return_documents", True) if "documents" in body else body.get("return_text", False)
    rows = [{"index": i, "score": numbers(text)} for i, text in enumerate(texts)]
    if wants_text:
        rows = [row | {"document" if "documents" in body else "text": texts[row["index"]]} for row in rows]
    return sorted(rows, key=lambda row: -row["score"]) if len(rows) > 1 else rows


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
def serving_rewards(numbers: Numbers, *, key: str | None = None, speaks: str = "vllm") -> Iterator[RewardServer]:
    """A running server for the length of the block."""
    rewards = RewardServer(numbers, key, speaks)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, value = rewards.answer(self.path, self.headers.get("authorization"), body)
            data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "text/plain" if isinstance(value, str) else "application/json")
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
