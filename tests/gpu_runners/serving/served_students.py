"""`kolm serve` in a thread of the test's own process: of one student on an encoder, or of a causal artifact."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.applications import Starlette

from backend.domain.artifact.kolm_verify import read_kolm
from gpu_runners.artifacts.encoder_student import EncoderModel
from gpu_runners.artifacts.loader import Loader
from gpu_runners.serving.label_server import ArtifactServer
from gpu_runners.serving.openai.connections import web_config


@contextmanager
def serving(data: bytes) -> Iterator[tuple[httpx.Client, EncoderModel]]:
    """A client of the server's address, and the student that answers there."""
    kolm = read_kolm(data)
    model = Loader(keyring=None, base_dir=None).model_of(kolm)
    with ArtifactServer(("127.0.0.1", 0), model=model, manifest=kolm.manifest) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_address[1]}", timeout=60) as client:
            yield client, model
        server.shutdown()
        thread.join()


@contextmanager
def serving_app(app: Starlette) -> Iterator[str]:
    """The address of a causal artifact's application."""
    server = uvicorn.Server(web_config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
