"""`python -m gpu_runners.serving`: one base, many tenants' adapters, OpenAI-compatible, for the gateway.

    POST /v1/chat/completions, /v1/completions, GET /v1/models    with a grant
    GET  /healthz    the process lives           GET /metrics    Prometheus

It starts in a second and holds no model until the first request wants one. SIGTERM and SIGINT: no new requests, the
running ones have KOLM_SERVER_DRAIN_S seconds to finish, usage is reported, then the process ends. A private port: it
believes grants, and puts no limits on who connects.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from backend.domain.log_text import guard_logs
from backend.domain.serving.wire import ServerRegistration, grant_key
from gpu_runners.config import BadSetting
from gpu_runners.engine.planning.plan import Speculation
from gpu_runners.serving.adapter_files import KolmFiles
from gpu_runners.serving.adapter_store import AdapterStore
from gpu_runners.serving.backend_client import Backend
from gpu_runners.serving.engine_pool import Bases, EnginePool
from gpu_runners.serving.engine_startup import EngineMaker
from gpu_runners.serving.fair_scheduler import FairScheduler
from gpu_runners.serving.feedback import FeedbackReporter
from gpu_runners.serving.journal import Journal, JournalBusy
from gpu_runners.serving.metrics import CONTENT_TYPE, metrics
from gpu_runners.serving.multi_tenant import GrantedResponder
from gpu_runners.serving.openai.app import make_app
from gpu_runners.serving.openai.connections import web_config
from gpu_runners.serving.registration import Registration, UsageReporter, describe_server
from gpu_runners.serving.server_config import ServerConfig, read_server_config
from gpu_runners.serving.server_context import ServerContext
from gpu_runners.serving.students import Students

log = logging.getLogger("kolm.server")
_LAST_WORDS_S = 5.0
_LOOK_S = 2.0


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    guard_logs()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        asyncio.run(serve(read_server_config()))
    except (BadSetting, JournalBusy) as error:
        print(f"server: {error}", file=sys.stderr)
        return 2
    return 0


async def serve(config: ServerConfig) -> None:
    """Serve until a signal ends it. Raises BadSetting, JournalBusy."""
    listening = _listen(config.host, config.port)
    backend = Backend(api_url=config.api_url, token=config.token)
    bases = Bases(base_dir=config.base_dir, names=config.bases)
    context = make_context(config, backend, bases)
    listed = await asyncio.to_thread(bases.list_bases)

    async def look_for_bases() -> None:
        """One that is put there while the server runs is served from the next registration on."""
        while True:
            await asyncio.sleep(_LOOK_S)
            listed[:] = await asyncio.to_thread(bases.list_bases)

    def describe() -> ServerRegistration:
        return describe_server(
            context,
            name=config.name,
            url=config.url,
            bases=listed,
            max_running=config.max_running,
            engine=context.about() or {"name": "none yet", "wanted": str(config.engine)},
        )

    registration = Registration(backend, context, describe)
    usage = UsageReporter(backend, context.journal, lambda: registration.server, first=registration.register_engine)
    feedback = FeedbackReporter(
        backend, context.feedback, collect=context.engines.pack_feedback, server=lambda: registration.server
    )
    app = make_app(GrantedResponder(context), routes=_own_routes(context, registration, usage))
    web = _Web(web_config(app, host=config.host, port=config.port, log_config=None, timeout_graceful_shutdown=5))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    tasks = [asyncio.create_task(work) for work in (registration.run(), usage.run(), feedback.run(), look_for_bases())]
    serving = asyncio.create_task(web.serve(sockets=[listening]))
    log.info(
        "server %s listens on %s:%d for bases %s", config.name, config.host, config.port, [b["id"] for b in listed]
    )
    await asyncio.wait([serving, asyncio.create_task(stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
    await _drain(context, registration, within_s=config.drain_s)
    web.should_exit = True
    await serving
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await usage.report_all(within_s=_LAST_WORDS_S)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            await feedback.report()
    await context.engines.close()
    if context.students is not None:
        context.students.close()
    context.journal.close()
    shutil.rmtree(config.unpacked, ignore_errors=True)
    await backend.close()
    log.info("server %s has stopped", config.name)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=2048)
    except OSError as error:
        raise BadSetting(
            f"KOLM_SERVER_PORT={port} on {host} cannot be had ({error.strerror}); name another."
        ) from error


def make_context(config: ServerConfig, backend: Backend, bases: Bases) -> ServerContext:
    async def fetch(sha256: str, grant: str) -> bytes:
        return await backend.artifact(sha256, grant, max_bytes=config.artifact_bytes)

    students = Students(base_dir=config.base_dir, is_served=lambda name: name in bases.names())
    store = AdapterStore(
        kolms=KolmFiles(config.state / "artifacts", max_bytes=config.disk_bytes),
        unpacked=config.unpacked,
        ram_bytes=config.ram_bytes,
        fetch=fetch,
        open_base=bases.open,
        keyring=config.keyring,
        students=students,
    )
    return ServerContext(
        key=grant_key(config.token),
        store=store,
        engines=EnginePool(EngineMaker(config), most=config.max_engines),
        scheduler=FairScheduler(
            max_running=config.max_running,
            max_waiting=config.max_waiting,
            max_tenant_waiting=max(1, config.max_waiting // 4),
        ),
        journal=Journal(config.state / "usage"),
        students=students,
        dedicated=config.dedicated,
        has_drafts=config.speculation is Speculation.RECIPES,
    )


def _own_routes(context: ServerContext, registration: Registration, usage: UsageReporter) -> list[BaseRoute]:
    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "draining" if context.is_draining else "ok"})

    async def show_metrics(_: Request) -> Response:
        text = metrics(context, registration, usage, now=time.monotonic())
        return PlainTextResponse(text, headers={"Content-Type": CONTENT_TYPE})

    return [Route("/healthz", healthz), Route("/metrics", show_metrics)]


async def _drain(context: ServerContext, registration: Registration, *, within_s: float) -> None:
    context.is_draining = True
    registration.register_soon()
    until = time.monotonic() + within_s
    while (context.scheduler.n_running or context.scheduler.n_waiting) and time.monotonic() < until:
        await asyncio.sleep(0.05)
    if context.scheduler.n_running:
        log.warning("%d requests were not finished within %.0f s", context.scheduler.n_running, within_s)


class _Web(uvicorn.Server):
    """Signals are this process's business, not the web server's: they begin the draining."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    raise SystemExit(main())
