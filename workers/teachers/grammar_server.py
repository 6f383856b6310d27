"""The grammar teacher over HTTP, in the shape of OpenAI's API, so that demo and tests run the production client
against it.

    python -m workers.teachers.grammar_server --port 8900 [--grammar FILE] [--host 127.0.0.1]

GET /v1/models, POST /v1/chat/completions (n, temperature, seed, max_tokens, logprobs, top_logprobs up to 20), POST
/v1/completions (the same without chat; `echo` with max_tokens 0 scores a given text, `prompt_logprobs` likewise in
vLLM's shape). All log-probs are of the distribution that was sampled, temperature included. `top_p` other than 1 is
refused: it would make the log-probs another distribution's. No key is checked: it listens on loopback and knows no
secret.
"""

import argparse
import contextlib
import hashlib
import json
import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from workers.teachers.grammar import DEFAULT_GRAMMAR, load_grammar
from workers.teachers.grammar_model import MODEL, GrammarModel, Token, Written
from workers.teachers.grammar_prompt import NotOurPrompt, split_echo
from workers.teachers.pcfg import tokenize

BODY_CAP = 1_000_000
MAX_N = 1024
LEAST_LOGPROB = -9999.0  # JSON has no -inf; OpenAI and vLLM write this number


class BadRequest(ValueError):
    """The request breaks the protocol, or asks for what a grammar cannot do."""


class GrammarServer(ThreadingHTTPServer):
    """`server_close` ends the idle keep-alive connections too, so that no thread outlives it."""

    daemon_threads = False  # the standard library joins no daemon thread
    block_on_close = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], model: GrammarModel) -> None:
        self.model = model
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that hangs up is its own business
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GrammarServer
    timeout = 60
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            row = {"id": MODEL, "object": "model", "owned_by": "kolm", "revision": self.server.model.revision}
            self._send(200, {"object": "list", "data": [row]})
        elif self.path == "/healthz":
            self._send(200, {"status": "ok"})
        else:
            self._send(404, _error("no such path"))

    def do_POST(self) -> None:
        routes = {"/v1/chat/completions": chat_completion, "/v1/completions": text_completion}
        raw = self._read_body()
        if raw is None:
            return
        try:
            body = json.loads(raw)
            if self.path not in routes:
                self._send(404, _error("no such path"))
            elif not isinstance(body, dict):
                self._send(400, _error("the body is not a JSON object"))
            else:
                self._send(200, routes[self.path](self.server.model, body))
        except (BadRequest, NotOurPrompt) as wrong:
            self._send(400, _error(str(wrong)))
        except (ValueError, RecursionError):
            self._send(400, _error("the body is not valid JSON"))

    def _read_body(self) -> bytes | None:
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_CAP:
            self.close_connection = True
            self._send(413 if length.isdigit() else 411, _error(f"send a Content-Length of at most {BODY_CAP} bytes"))
            return None
        return self.rfile.read(int(length))

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("x-request-id", f"grm-{time.time_ns():x}")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # a line a call would drown the demo's output


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def chat_completion(model: GrammarModel, body: dict[str, Any]) -> dict[str, Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and isinstance(m.get("content"), str) and isinstance(m.get("role"), str) for m in messages
    ):
        raise BadRequest("`messages` is a list of {role, content}")
    prompt = "\n\n".join(m["content"] for m in messages if m["role"] == "user")
    n_top = _number(body, "top_logprobs", 0, 0, 20, int)
    written = _write(model, prompt, body, n_top)
    wants = body.get("logprobs") is True
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": w.text},
            "finish_reason": "length" if w.is_cut else "stop",
            "logprobs": {"content": [_token_json(t) for t in w.tokens]} if wants else None,
        }
        for i, w in enumerate(written)
    ]
    n_prompt = sum(len(tokenize(m["content"])) + 4 for m in messages)
    return _envelope(model, "chat.completion", body, choices, n_prompt, sum(len(w.tokens) for w in written))


def text_completion(model: GrammarModel, body: dict[str, Any]) -> dict[str, Any]:
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise BadRequest("`prompt` is a text")
    if body.get("echo") is True or body.get("prompt_logprobs") is not None:
        if _number(body, "max_tokens", 0, 0, 1, int) != 0:
            raise BadRequest("a prompt is scored with max_tokens 0: nothing is generated after it")
        return _scored(model, prompt, body)
    written = _write(model, prompt, body, 0)
    wants = isinstance(body.get("logprobs"), int) and not isinstance(body.get("logprobs"), bool)
    choices = [
        {
            "index": i,
            "text": w.text,
            "finish_reason": "length" if w.is_cut else "stop",
            "logprobs": _columns(w.tokens, 0) if wants else None,
        }
        for i, w in enumerate(written)
    ]
    n_tokens = sum(len(w.tokens) for w in written)
    return _envelope(model, "text_completion", body, choices, len(tokenize(prompt)), n_tokens)


def _scored(model: GrammarModel, prompt: str, body: dict[str, Any]) -> dict[str, Any]:
    """The grammar is a model of answers, not of prompts: the prompt's own tokens have no log-prob (null)."""
    asked, text = split_echo(prompt)
    tokens = model.score(asked, text, temperature=_number(body, "temperature", 1.0, 0.0, 100.0, float))
    asked_tokens = tokenize(asked)
    columns = _columns(tokens, len(asked))
    offsets = [sum(len(t) for t in asked_tokens[:i]) for i in range(len(asked_tokens))]
    blank: list[Any] = [None] * len(asked_tokens)
    choice = {
        "index": 0,
        "text": prompt,
        "finish_reason": "length",
        "logprobs": {
            "tokens": asked_tokens + columns["tokens"],
            "token_logprobs": blank + columns["token_logprobs"],
            "text_offset": offsets + columns["text_offset"],
        },
        "prompt_logprobs": [
            *blank,
            *({t.text: {"logprob": _finite(t.logprob), "decoded_token": t.text}} for t in tokens),
        ],
    }
    return _envelope(model, "text_completion", body, [choice], len(asked_tokens) + len(tokens), 0)


def _write(model: GrammarModel, prompt: str, body: dict[str, Any], n_top: int) -> list[Written]:
    if body.get("stream"):
        raise BadRequest("`stream` is not supported")
    if body.get("top_p") not in (None, 1, 1.0):
        raise BadRequest("`top_p` other than 1 is not supported: the log-probs would be another distribution's")
    seed = body.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise BadRequest("`seed` is a whole number")
    return model.answer(
        prompt,
        n=_number(body, "n", 1, 1, MAX_N, int),
        temperature=_number(body, "temperature", 1.0, 0.0, 100.0, float),
        seed=seed,
        max_tokens=_number(body, "max_tokens", 1024, 1, 1_000_000, int),
        n_top=n_top,
    )


def _number(body: dict[str, Any], name: str, default: Any, least: Any, most: Any, kind: type) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and not isinstance(value, int)):
        raise BadRequest(f"`{name}` is a number")
    if not least <= value <= most:
        raise BadRequest(f"`{name}` is between {least} and {most}")
    return kind(value)


def _token_json(token: Token) -> dict[str, Any]:
    top = [{"token": t, "logprob": _finite(p), "bytes": list(t.encode())} for t, p in token.top]
    logprob = _finite(token.logprob)
    return {"token": token.text, "logprob": logprob, "bytes": list(token.text.encode()), "top_logprobs": top}


def _columns(tokens: Sequence[Token], at: int) -> dict[str, list[Any]]:
    offsets = [at + sum(len(t.text) for t in tokens[:i]) for i in range(len(tokens))]
    return {
        "tokens": [t.text for t in tokens],
        "token_logprobs": [_finite(t.logprob) for t in tokens],
        "text_offset": offsets,
    }


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB


def _envelope(
    model: GrammarModel, kind: str, body: dict[str, Any], choices: list[Any], n_in: int, n_out: int
) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return {
        "id": f"grm-{digest[:24]}",
        "object": kind,
        "created": int(time.time()),
        "model": MODEL,
        "system_fingerprint": model.revision,
        "choices": choices,
        "usage": {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out},
    }


@contextlib.contextmanager
def serving(model: GrammarModel, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[GrammarServer]:
    """A running server for the length of the block; every thread of it has ended afterwards."""
    server = GrammarServer((host, port), model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="grammar-server")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workers.teachers.grammar_server", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--grammar", type=Path, default=DEFAULT_GRAMMAR)
    args = parser.parse_args(argv)
    model = GrammarModel(load_grammar(args.grammar.read_bytes()))
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    with serving(model, host=args.host, port=args.port) as server:
        print(f"grammar teacher {model.revision[:12]} on {server.url}", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
