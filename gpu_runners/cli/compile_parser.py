"""The options of `kolm check`, `compile`, `ablate`, `pull`, `cancel` and `resume`. Nothing is imported here that
another command would not want to wait for."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_runners.cli.amounts import microusd_of

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

Options = Callable[[argparse.ArgumentParser], None]
SPEC = "YAML or JSON; - is standard input"


def add_compile_parsers(commands: "Actions", api_options: Options) -> None:
    check = commands.add_parser("check", help="validate a spec on this machine")
    check.add_argument("spec", metavar="SPEC", help=SPEC)
    check.add_argument("--json", action="store_true", help="print the spec as JSON with every default filled in")
    check.set_defaults(command=_run_check)
    for add in (_compile, _ablate, _pull, _cancel, _resume):
        api_options(add(commands))


def _compile(commands: "Actions") -> argparse.ArgumentParser:
    compile_ = commands.add_parser(
        "compile", help="compile a spec into a .kolm: exit 0 succeeded, 4 gate failed, 1 failed"
    )
    compile_.add_argument("spec", metavar="SPEC", help=SPEC)
    compile_.add_argument("--estimate", action="store_true", help="print what it would cost and start nothing")
    compile_.add_argument(
        "--wait",
        "--watch",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show progress until it ends (default)",
    )
    compile_.add_argument("--out", metavar="FILE", help="where the artifact goes (default: NAME.kolm here)")
    compile_.add_argument(
        "--compare-last", action="store_true", help="set the K-score beside that of the last artifact of the name"
    )
    compile_.add_argument(
        "--idempotency-key", metavar="KEY", help="repeat a compile's request without starting a second one"
    )
    compile_.add_argument("--json", action="store_true", help="print the compile as JSON; progress goes to stderr")
    compile_.set_defaults(command=_run_compile)
    return compile_


def _ablate(commands: "Actions") -> argparse.ArgumentParser:
    ablate = commands.add_parser(
        "ablate", help="compile with and without selection from the same candidates and print the difference"
    )
    ablate.add_argument("spec", metavar="SPEC", nargs="?", help=SPEC)
    ablate.add_argument("--of", metavar="CMP", help="cmp_…: take this compile instead of compiling SPEC")
    ablate.add_argument("--arms", default="all,random", metavar="ARMS", help="all, random or both (default)")
    ablate.add_argument("--budget", metavar="USD", help="what one arm may cost (default: the compile's budget)")
    ablate.add_argument("--json", action="store_true", help="print the comparison as JSON; progress goes to stderr")
    ablate.set_defaults(command=_run_ablate)
    return ablate


def _pull(commands: "Actions") -> argparse.ArgumentParser:
    pull = commands.add_parser("pull", help="download an artifact")
    pull.add_argument("artifact", metavar="ART", help="art_…")
    pull.add_argument("--out", metavar="FILE", help="default: NAME-VERSION.kolm here")
    pull.add_argument("--json", action="store_true", help="print the artifact as JSON, and where the file is")
    pull.set_defaults(command=_run_pull)
    return pull


def _cancel(commands: "Actions") -> argparse.ArgumentParser:
    cancel = commands.add_parser("cancel", help="stop a compile; what is done and paid for is kept")
    cancel.add_argument("compile", metavar="CMP", help="cmp_…")
    cancel.add_argument("--json", action="store_true", help="print the API's answer")
    cancel.set_defaults(command=_run_cancel)
    return cancel


def _resume(commands: "Actions") -> argparse.ArgumentParser:
    resume = commands.add_parser("resume", help="go on with a compile that ended early: exit as of `kolm compile`")
    resume.add_argument("compile", metavar="CMP", help="cmp_…")
    resume.add_argument("--budget", type=microusd_of, metavar="USD", help="a new budget for the whole compile")
    resume.add_argument(
        "--wait",
        "--watch",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show progress until it ends (default)",
    )
    resume.add_argument("--json", action="store_true", help="print the compile as JSON; progress goes to stderr")
    resume.set_defaults(command=_run_resume)
    return resume


def _run_check(options: argparse.Namespace) -> int:
    from gpu_runners.cli.compiles import check

    return check(options.spec, as_json=options.json)


def _run_compile(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.compiles import compile_spec, estimate

    if options.estimate:
        return estimate(options.spec, connect=connect_of(options), as_json=options.json)
    return compile_spec(
        options.spec,
        connect=connect_of(options),
        wait=options.wait,
        out=options.out,
        idempotency_key=options.idempotency_key,
        compare_last=options.compare_last,
        as_json=options.json,
    )


def _run_ablate(options: argparse.Namespace) -> int:
    from gpu_runners.cli.ablate import ablate
    from gpu_runners.cli.api import connect_of

    return ablate(
        options.spec,
        of=options.of,
        arms=options.arms,
        budget=options.budget,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_pull(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.compiles import pull

    return pull(options.artifact, connect=connect_of(options), out=options.out, as_json=options.json)


def _run_cancel(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.listings import cancel

    return cancel(options.compile, connect=connect_of(options), as_json=options.json)


def _run_resume(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.compiles import resume

    return resume(
        options.compile,
        connect=connect_of(options),
        budget_microusd=options.budget,
        wait=options.wait,
        as_json=options.json,
    )
