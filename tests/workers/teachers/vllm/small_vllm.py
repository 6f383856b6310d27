"""A server on loopback that speaks what on-policy distillation asks of vLLM: `/tokenize`, and `prompt_logprobs` of
`/v1/completions`, in the shapes and words of vLLM 0.32.0 (entrypoints/serve/tokenize/protocol.py,
entrypoints/openai/completion/protocol.py, logprobs.py, sampling_params.py). What it says of a token is made up: a
token is a word with the space before it, and it is sure of each to nine tenths. Against the engine itself: tests/vllm.
"""

import contextlib
import json
import math
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "big"
END = "<|end|>"
OTHER = " other"
MOST_LOGPROBS = 20
CONTEXT = 4096


@dataclass(slots=True)
class SmallVllm:
    """A running server: every body that it was sent, by path. `tells`: it fills in `prompt_logprobs`."""

    tells: bool = True
    max_logprobs: int = MOST_LOGPROBS
    origin: str = ""
    bodies: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=lambda: {END: 0, OTHER: 1})
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def text_of(self, ids: list[int]) -> str:
        texts = {i: text for text, i in self.ids.items()}
        return "".join(texts[i] for i in ids)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self.guard:
            self.bodies.setdefault(path, []).append(body)
            if path == "/tokenize":
                tokens = self._tokens(body)
                return 200, {"count": len(tokens), "max_model_len": CONTEXT, "tokens": tokens, "token_strs": None}
            if path == "/v1/completions":
                return self._complete(body)
            return 404, {"detail": "Not Found"}

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        if "prompt" in body:
            return self._cut(body["prompt"])
        turns = "".join(f"<|{one['role']}|>{one['content']}{END}" for one in body["messages"])
        return self._cut(turns + ("<|assistant|>" if body["add_generation_prompt"] else ""))

    def _cut(self, text: str) -> list[int]:
        pieces = re.findall(r"<\|\w+\|>|\s*(?:(?!<\|)\S)+|\s+", text)
        assert "".join(pieces) == text
        return [self.ids.setdefault(piece, len(self.ids)) for piece in pieces]

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        wanted = body.get("prompt_logprobs")
        if wanted is not None and wanted > self.max_logprobs:
            message = f"Requested prompt logprobs of {wanted}, which is greater than max allowed: {self.max_logprobs}"
            return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
        names = {i: text for text, i in self.ids.items()}
        rows = [
            None,
            *({str(i): _logprob(0.9, 1, names[i]), "1": _logprob(0.08, 2, OTHER)} for i in body["prompt"][1:]),
        ]
        choice = {
            "index": 0,
            "text": " x",
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": rows if wanted and self.tells else None,
            "prompt_token_ids": None,
        }
        n = len(body["prompt"])
        usage = {"prompt_tokens": n, "total_tokens": n + 1, "completion_tokens": 1, "prompt_tokens_details": None}
        made = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL, "choices": [choice]}
        return 200, made | {
            "service_tier": None,
            "system_fingerprint": None,
            "usage": usage,
            "kv_transfer_params": None,
        }


def _logprob(p: float, rank: int, text: str) -> dict[str, Any]:
    return {"logprob": math.log(p), "rank": rank, "decoded_token": text}


@contextlib.contextmanager
def small_vllm(**fields: Any) -> Iterator[SmallVllm]:
    server = SmallVllm(**fields)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, value = server.answer(self.path, body)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.origin = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, name="small-vllm")
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join(10)
        listener.server_close()
