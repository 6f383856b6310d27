"""`kolm serve` of one generative artifact: OpenAI's interface on loopback, and beside it the routes that a label
artifact's server has.

    POST /v1/run    {"inputs": ["text", ...]} or {"input": "text"}  ->  {"object": "run", "outputs": [...], ...}
    GET  /v1/model  what is served, from the signed manifest

No TLS, no accounts: a laptop's or a sidecar's server.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from backend.domain.artifact.kolm_verify import Kolm
from gpu_runners.artifacts.generative_model import GenerativeModel
from gpu_runners.serving.openai.app import guard, make_app
from gpu_runners.serving.openai.arrival import read_body
from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.bodies.chats import read_json
from gpu_runners.serving.openai.body_threads import in_turn
from gpu_runners.serving.openai.connections import web_config
from gpu_runners.serving.openai.responder import Refusal, Served
from gpu_runners.serving.openai.run_bodies import BadInputs, read_inputs, run_answer

_SHOWN = ("name", "version", "compile", "task_type", "base", "k_score_ppm", "created_at")


class OneArtifact:
    """Everybody may use the one model that is here, by its name."""

    def __init__(self, kolm: Kolm, model: GenerativeModel) -> None:
        self.name, self._model, self._since = str(kolm.manifest["name"]), model, int(time.time())

    async def admit(self, headers: Mapping[str, str]) -> str:
        return ""

    async def resolve(self, model: str, headers: Mapping[str, str]) -> Served:
        if model != self.name:
            raise Refusal(404, "model_not_found", f"Here is one model, {self.name!r}.")
        one = self._model
        return Served(
            engine=one.engine,
            base=one.base,
            adapter=one.adapter,
            prompt=one.prompt.to_json(),
            model=self.name,
            drafting=one.drafting,
            rules=one.rules,
        )

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        return [{"id": self.name, "object": "model", "created": self._since, "owned_by": "kolm"}]


def app_of(kolm: Kolm, model: GenerativeModel) -> Starlette:
    async def run(request: Request) -> Response:
        data = await read_body(request)
        texts = await in_turn(len(data), lambda: _texts(data))
        return JSONResponse(run_answer(kolm.manifest, await asyncio.to_thread(model.predict, texts)))

    async def about(request: Request) -> Response:
        shown = {name: kolm.manifest[name] for name in _SHOWN if name in kolm.manifest}
        return JSONResponse(shown | {"answer": model.prompt.answer, "engine": dict(model.engine.about)})

    old = [
        Route("/v1/run", guard(run), methods=["POST"]),
        Route("/v1/model", guard(about), methods=["GET"]),
    ]
    return make_app(OneArtifact(kolm, model), routes=old)


def serve_one(kolm: Kolm, model: GenerativeModel, *, host: str, port: int) -> int:
    """Serve until interrupted; the exit code."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        print(f"kolm: {host}:{port} cannot be used ({error.strerror}); choose another --port.", file=sys.stderr)
        return 1
    url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    body = json.dumps({"model": kolm.manifest["name"], "messages": [{"role": "user", "content": "..."}]})
    print(f"serving {kolm.manifest['name']} on {url}/v1", flush=True)
    print(f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'", flush=True)
    uvicorn.Server(web_config(app_of(kolm, model), log_level="warning")).run(sockets=[listening])
    return 0


def _texts(data: bytes) -> list[str]:
    try:
        return read_inputs(read_json(data))
    except BadInputs as fault:
        raise BadRequest(str(fault), param="inputs", code="invalid_value") from fault
