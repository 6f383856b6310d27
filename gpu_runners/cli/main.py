"""`kolm`: log in, check and compile specs, look at what came of them and what it cost, fetch, trust, verify, run and
measure artifacts, select rows, hear webhooks.

A command's module is imported when that command was typed: `kolm --help` imports none, and `kolm verify` starts without
httpx, pydantic or torch.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO, cast

import click

from gpu_runners.cli.command_groups import Entry, LazyGroup
from gpu_runners.cli.exit_codes import INTERRUPTED, PIPE_CLOSED, USAGE
from gpu_runners.cli.terminal import fail
from gpu_runners.terminal_text import TextOnly

COMPLETE = "_KOLM_COMPLETE"  # set by the shell's script: which completions are asked for
# section of `kolm --help` -> command -> where it is, and its line there
SECTIONS: dict[str, dict[str, Entry]] = {
    "Compile": {
        "init": Entry("data.drafting:init", "Write a short spec for a file of data, after four questions or none."),
        "check": Entry("api.compiles:check", "Validate a spec on this machine."),
        "doctor": Entry(
            "api.doctor:doctor",
            "Look whether a compile of a spec can end, before anything is paid: exit 0, or 1 if not.",
        ),
        "compile": Entry(
            "api.compiles:compile_spec", "Compile a spec into a .kolm: exit 0 succeeded, 4 gate failed, 1 failed."
        ),
        "ablate": Entry(
            "api.ablate:ablate",
            "Compile with and without selection from the same candidates and print the difference.",
        ),
        "cancel": Entry("api.compiles:cancel", "Stop a compile; what is done and paid for is kept."),
        "resume": Entry("api.compiles:resume", "Go on with a compile that ended early: exit as of `kolm compile`."),
        "select": Entry("select:select_rows", "Keep the K of N rows that teach most, on this machine."),
    },
    "What is there": {
        "upload": Entry("data.uploads:upload", "Upload the rows of a file in any form, for specs to name."),
        "ls": Entry("api.listings:ls", "Compiles, artifacts or uploads, newest first."),
        "show": Entry("api.listings:show", "Whatever has an id: cmp_…, art_…, drf_…, key_…, we_… and so on."),
        "open": Entry("api.opening:open_page", "Open the console's page of a compile, an artifact or a deployment."),
        "logs": Entry("api.logs:logs", "The events of a compile, with the time of each; -f follows them."),
        "pull": Entry("api.compiles:pull", "Download an artifact."),
        "drafts": Entry("api.drafts:drafts", "The draft cache: what it holds, what it saves, deleting from it."),
        "registry": Entry("api.registry:registry", "Epochs of structural recipes that many tenants share."),
    },
    "Artifacts on this machine": {
        "trust": Entry("artifacts.trust:trust", "Pin the signing keys of an installation."),
        "verify": Entry(
            "artifacts.verify:verify",
            "Verify offline: exit 0 trusted, 3 intact but untrusted, 1 altered, 2 not a .kolm.",
        ),
        "inspect": Entry("artifacts.inspect:inspect", "Show what is in an intact .kolm."),
        "run": Entry("artifacts.run:run", "Answer texts with a .kolm."),
        "serve": Entry("artifacts.serve:serve", "Serve a .kolm over HTTP."),
        "export": Entry(
            "artifacts.export:export", "Write a .kolm's model for another library, its receipts beside it."
        ),
        "recipes": Entry("artifacts.recipes:recipes", "List a .kolm's recipes, the biggest savings first."),
        "rules": Entry("artifacts.recipes:rules", "List a .kolm's rules, or write them as a JavaScript function."),
        "bench": Entry(
            "artifacts.bench:bench",
            "Measure a .kolm: the model alone, and with each source of drafted tokens; its rules.",
        ),
    },
    "Serving": {
        "deployments": Entry("api.deployments:deployments", "Names under which artifacts answer chats."),
        "chat": Entry("api.chat:chat", "Ask a deployment or an artifact; the answer as it comes."),
        "webhooks": Entry("api.webhooks.endpoints:webhooks", "Endpoints, deliveries, and events on this machine."),
    },
    "Account": {
        "login": Entry("api.account:login", "Ask for address and API key, check them, and keep them for this user."),
        "logout": Entry("api.account:logout", "Forget a saved login; the key itself stays valid."),
        "whoami": Entry("api.account:whoami", "Which tenant and key this is, and of which installation."),
        "keys": Entry("api.account:keys", "API keys."),
        "teacher-keys": Entry(
            "api.teacher_keys:teacher_keys", "Your keys for teachers: stored sealed, tried, forgotten."
        ),
        "usage": Entry("api.money:usage", "What was used, and what it cost."),
        "bill": Entry("api.money:bill", "This month's bill so far, or that of one compile."),
        "budgets": Entry("api.money:budgets", "What a month may cost."),
        "prices": Entry("api.money:prices", "What the tokens of vendors' models cost, with dates and sources."),
    },
    "This command": {
        "completion": Entry("completion:completion", "Print the script by which a shell completes `kolm`."),
    },
}


def _print_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Looked up when it is asked for: other commands need not wait for the client's libraries."""
    if is_asked and not context.resilient_parsing:
        from gpu_runners.kolm.client import VERSION

        print(f"kolm {VERSION}")
        context.exit()


kolm = LazyGroup(
    "kolm",
    package="gpu_runners.cli",
    sections=SECTIONS,
    help="A compiler for language-model tasks.",
    params=[
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
            help="Print kolm's version.",
        )
    ],
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    out, err = TextOnly(sys.stdout), TextOnly(sys.stderr)
    with contextlib.redirect_stdout(cast(TextIO, out)), contextlib.redirect_stderr(cast(TextIO, err)):
        return _answer(list(sys.argv[1:] if argv is None else argv))


def _answer(words: list[str]) -> int:
    """Run what was typed; the exit code. click's own `main` has other codes for an interrupt and a closed pipe."""
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(kolm, {}, "kolm", COMPLETE, instruction)
    try:
        with kolm.make_context("kolm", words) as context:
            return int(kolm.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        return _refuse(error)
    except (KeyboardInterrupt, click.Abort):  # click's is Ctrl-C, or the end of the input, at a question
        print("kolm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `kolm inspect x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _refuse(error: click.UsageError) -> int:
    context = error.ctx
    if context is None:
        return fail(error.format_message(), code=USAGE)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(context.get_help(), file=sys.stderr)
        return USAGE
    print(context.get_usage(), file=sys.stderr)
    return fail(f"{error.format_message()} `{context.command_path} --help` has more.", code=USAGE)
