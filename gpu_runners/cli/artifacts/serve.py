"""`kolm serve`: a `.kolm` over HTTP on the reader's machine."""

import click

from gpu_runners.cli.artifacts.loading import Refused, model_of, read_trusted
from gpu_runners.cli.options import file_argument, trust_options
from gpu_runners.cli.terminal import fail


@click.command()
@file_argument
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="HOST",
    help="loopback unless you say otherwise: there is no authentication",
)
@click.option("--port", type=int, default=8090, metavar="PORT", help="8090 unless you say otherwise")
@click.option(
    "--max-running", type=int, default=16, metavar="N", help="answers generated at a time (json and text tasks)"
)
@click.option("--draft", metavar="BASE", help="a base that drafts tokens, where the compiler chose one (or the spec's)")
@trust_options("run")
def serve(
    *,
    file: str,
    host: str,
    port: int,
    keyring: str | None,
    allow_untrusted: bool,
    max_running: int,
    draft: str | None,
) -> int:
    try:
        kolm = read_trusted(file, keyring, allow_untrusted)
        model = model_of(kolm, max_running=max_running, draft=draft)
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    from gpu_runners.artifacts.label_model import LabelModel
    from gpu_runners.artifacts.span_model import SpanModel
    from gpu_runners.serving.label_server import ArtifactServer

    if not isinstance(model, LabelModel | SpanModel):
        from gpu_runners.serving.openai.single import serve_one

        return serve_one(kolm, model, host=host, port=port)
    try:
        server = ArtifactServer((host, port), model=model, manifest=kolm.manifest)
    except OSError as error:
        return fail(f"{host}:{port} cannot be used ({error.strerror}); choose another --port.")
    with server:
        url = f"http://{host}:{server.server_address[1]}/v1"
        print(f"serving {kolm.manifest['name']} on {url}/run, for OpenAI's clients on {url}", flush=True)
        server.serve_forever()
    return 0
