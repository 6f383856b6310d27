"""`kolm open`: the console's page of a thing, in the browser of this machine."""

import os
import sys
from urllib.parse import quote

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.api.deployments import id_of
from gpu_runners.cli.exit_codes import USAGE
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client

# the console's page of an id of each kind
PAGES = {"cmp": "compiles", "art": "artifacts", "dep": "deployments", "we": "webhooks", "whd": "webhooks/deliveries",
         "invc": "bills/invoices"}  # fmt: skip


@click.command("open")
@click.argument("id", metavar="[ID]", required=False, help="cmp_…, art_…, dep_… or so on, or a deployment's name")
@click.option("--print", "only_print", is_flag=True, help="print the address alone, and open nothing")
@api_options
def open_page(*, id: str | None, only_print: bool, connect: Connect) -> int:
    kind = (id or "").partition("_")[0]
    if id is not None and "_" in id and kind not in PAGES and not _is_name(id):
        known = ", ".join(f"{prefix}_" for prefix in PAGES)
        return fail(f"{id!r} has no page of its own; ids that have one begin with {known}.", code=USAGE)

    def act(client: Client) -> None:
        url = f"{client.base_url}/app/{_path(client, id)}"
        print(url)
        if not only_print and has_browser():
            import webbrowser

            webbrowser.open(url)

    return run_command(act, connect)


def has_browser() -> bool:
    """Say whether a page that is opened would be seen: not over ssh, in CI, or without a screen."""
    if os.environ.get("CI") or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _path(client: Client, id: str | None) -> str:
    if id is None:
        return ""
    kind = id.partition("_")[0]
    if kind in PAGES and "_" in id:
        return f"{PAGES[kind]}/{quote(id, safe='')}"
    return f"{PAGES['dep']}/{id_of(client, id)}"


def _is_name(id: str) -> bool:
    """Ids are 26 characters behind their prefix; whatever else may be a deployment's name."""
    return len(id.partition("_")[2]) != 26
