"""`kolm`: check and compile specs, look into the draft cache, select rows, fetch, trust, verify and run artifacts.

Each command imports what it needs when it runs: `kolm verify` starts without httpx, pydantic or torch.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from gpu_runners.draft_parser import add_drafts_parser
from gpu_runners.selecting.parser import add_select_parser

DEFAULT_API = "http://127.0.0.1:8000"


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        print("kolm: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `kolm inspect x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """`kolm run FILE --keyring K TEXT` too: argparse takes no more texts once an option stood between."""
    top = parser()
    options, rest = top.parse_known_args(argv)
    if rest and hasattr(options, "texts") and not any(word.startswith("-") for word in rest):
        options.texts += rest
    elif rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="kolm", description="A compiler for language-model tasks.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _compile_parsers(commands)
    add_drafts_parser(commands, _api_options)
    add_select_parser(commands)
    _artifact_parsers(commands)
    return top


def _compile_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    check = commands.add_parser("check", help="validate a spec on this machine")
    check.add_argument("spec", metavar="SPEC", help="YAML or JSON; - is standard input")
    check.add_argument("--json", action="store_true", help="print the spec as JSON with every default filled in")
    check.set_defaults(command=_check)
    compile_ = commands.add_parser(
        "compile", help="compile a spec into a .kolm: exit 0 succeeded, 4 gate failed, 1 failed"
    )
    compile_.add_argument("spec", metavar="SPEC", help="YAML or JSON; - is standard input")
    compile_.add_argument("--estimate", action="store_true", help="print what it would cost and start nothing")
    compile_.add_argument(
        "--wait", action=argparse.BooleanOptionalAction, default=True, help="show progress until it ends (default)"
    )
    compile_.add_argument("--out", metavar="FILE", help="where the artifact goes (default: NAME.kolm here)")
    compile_.add_argument(
        "--idempotency-key", metavar="KEY", help="repeat a compile's request without starting a second one"
    )
    _api_options(compile_)
    compile_.set_defaults(command=_compile)
    ablate = commands.add_parser(
        "ablate", help="compile with and without selection from the same candidates and print the difference"
    )
    ablate.add_argument("spec", metavar="SPEC", nargs="?", help="YAML or JSON; - is standard input")
    ablate.add_argument("--of", metavar="CMP", help="cmp_…: take this compile instead of compiling SPEC")
    ablate.add_argument("--arms", default="all,random", metavar="ARMS", help="all, random or both (default)")
    ablate.add_argument("--budget", metavar="USD", help="what one arm may cost (default: the compile's budget)")
    ablate.add_argument("--json", action="store_true", help="print the comparison as JSON; progress goes to stderr")
    _api_options(ablate)
    ablate.set_defaults(command=_ablate)
    pull = commands.add_parser("pull", help="download an artifact")
    pull.add_argument("artifact", metavar="ART", help="art_…")
    pull.add_argument("--out", metavar="FILE", help="default: NAME-VERSION.kolm here")
    _api_options(pull)
    pull.set_defaults(command=_pull)


def _artifact_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    trust = commands.add_parser("trust", help="pin the signing keys of a deployment")
    trust.add_argument("source", metavar="URL|FILE", help="https://kolm.example, or a keyring file")
    trust.add_argument("--keyring", metavar="FILE")
    trust.add_argument("--yes", action="store_true", help="do not ask: the fingerprints were compared already")
    trust.set_defaults(command=_trust)
    verify = commands.add_parser(
        "verify", help="verify offline: exit 0 trusted, 3 intact but untrusted, 1 altered, 2 not a .kolm"
    )
    verify.add_argument("file", metavar="FILE")
    verify.add_argument("--keyring", metavar="FILE", help="default: $KOLM_KEYRING or ~/.config/kolm/keyring.json")
    verify.add_argument("--json", action="store_true")
    verify.set_defaults(command=_verify)
    inspect = commands.add_parser("inspect", help="show what is in an intact .kolm")
    inspect.add_argument("file", metavar="FILE")
    inspect.add_argument("--json", action="store_true")
    inspect.set_defaults(command=_inspect)
    run = commands.add_parser("run", help="label texts with a .kolm")
    run.add_argument("file", metavar="FILE")
    run.add_argument("texts", metavar="TEXT", nargs="*")
    run.add_argument(
        "--jsonl", nargs="?", const="-", metavar="FILE", help='lines of {"input": …} (default: standard input)'
    )
    run.add_argument("--json", action="store_true", help="one JSON object a line")
    serve = commands.add_parser("serve", help="serve a .kolm over HTTP")
    serve.add_argument("file", metavar="FILE")
    serve.add_argument(
        "--host", default="127.0.0.1", help="loopback unless you say otherwise: there is no authentication"
    )
    serve.add_argument("--port", type=int, default=8090)
    for command, act in ((run, _run), (serve, _serve)):
        command.add_argument("--keyring", metavar="FILE")
        command.add_argument(
            "--allow-untrusted", action="store_true", help="run an intact file although nobody vouches for its key"
        )
        command.set_defaults(command=act)


def _api_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--api", default=os.environ.get("KOLM_API_URL") or DEFAULT_API, metavar="URL", help="or KOLM_API_URL"
    )
    command.add_argument("--key", default=os.environ.get("KOLM_API_KEY"), metavar="KEY", help="or KOLM_API_KEY")


def _check(options: argparse.Namespace) -> int:
    from gpu_runners.compile_commands import check

    return check(options.spec, as_json=options.json)


def _compile(options: argparse.Namespace) -> int:
    from gpu_runners.compile_commands import compile_spec, estimate

    if options.estimate:
        return estimate(options.spec, api=options.api, key=options.key)
    return compile_spec(
        options.spec,
        api=options.api,
        key=options.key,
        wait=options.wait,
        out=options.out,
        idempotency_key=options.idempotency_key,
    )


def _ablate(options: argparse.Namespace) -> int:
    from gpu_runners.ablate_commands import ablate

    return ablate(
        options.spec,
        of=options.of,
        arms=options.arms,
        budget=options.budget,
        as_json=options.json,
        api=options.api,
        key=options.key,
    )


def _pull(options: argparse.Namespace) -> int:
    from gpu_runners.compile_commands import pull

    return pull(options.artifact, api=options.api, key=options.key, out=options.out)


def _trust(options: argparse.Namespace) -> int:
    from gpu_runners.artifact_commands import trust

    return trust(options.source, keyring=options.keyring, yes=options.yes)


def _verify(options: argparse.Namespace) -> int:
    from backend.domain import kolm_verify

    arguments = [
        options.file,
        *(["--keyring", options.keyring] if options.keyring else []),
        *(["--json"] if options.json else []),
    ]
    return kolm_verify.main(arguments)


def _inspect(options: argparse.Namespace) -> int:
    from gpu_runners.artifact_commands import inspect

    return inspect(options.file, as_json=options.json)


def _run(options: argparse.Namespace) -> int:
    from gpu_runners.artifact_commands import run

    return run(
        options.file,
        options.texts,
        jsonl=options.jsonl,
        as_json=options.json,
        keyring=options.keyring,
        allow_untrusted=options.allow_untrusted,
    )


def _serve(options: argparse.Namespace) -> int:
    from gpu_runners.artifact_commands import serve

    return serve(
        options.file,
        host=options.host,
        port=options.port,
        keyring=options.keyring,
        allow_untrusted=options.allow_untrusted,
    )


if __name__ == "__main__":
    sys.exit(main())
