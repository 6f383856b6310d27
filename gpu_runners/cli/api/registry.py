"""`kolm registry`: epochs listed, fetched and verified, and this workspace's own part in them.

Verifying asks nobody: the file, the keyring and this code are enough. What a server says of an epoch is not believed;
`pull` verifies what came before it writes it.
"""

import json
from pathlib import Path
from typing import Any

import click

from backend.domain.artifact import kolm_verify
from backend.domain.recipes.registry.epochs import Epoch, InvalidEpoch, Proof, read_epoch, read_proof
from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display.printing import print_json, print_table, when
from gpu_runners.cli.exit_codes import OK, UNTRUSTED, USAGE
from gpu_runners.cli.options import KEYRING_HELP, PATH, json_option
from gpu_runners.cli.terminal import agrees, fail
from gpu_runners.kolm import Client, NotFound

EPOCHS = "/v1/registry/epochs"
CONTRIBUTIONS = "/v1/registry/contributions"


registry = Actions("registry")
EACH = "print what the API answers, one object a line"


@registry.command("list", help="The epochs there are, newest first.")
@json_option(EACH)
@api_options
def ls(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        rows = client.get(EPOCHS)["data"]
        if as_json:
            for row in rows:
                print_json(row)
            return
        cells = (
            (str(row["epoch"]), when(row["created_at"]), str(row["n_entries"]), f"{row['k']}", row["id"])
            for row in rows
        )
        none = "There is no epoch yet: nothing is shared by enough tenants."
        print_table(("epoch", "made", "entries", "k", "id"), cells, right=(0, 2, 3), none=none)

    return run_command(act, connect)


@registry.command("pull", help="Download an epoch and verify it; exit codes as of verify.")
@click.argument("epoch", metavar="[EPOCH]", required=False, help="epo_… or its number (default: the newest)")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="default: registry-N.epoch.json")
@click.option("--keyring", type=PATH, metavar="FILE", help=KEYRING_HELP)
@json_option(EACH)
@api_options
def pull(*, epoch: str | None, output: str | None, keyring: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> int:
        row = _epoch_row(client, epoch)
        data = client.download(f"{EPOCHS}/{row['id']}/download")
        try:
            document = read_epoch(data)
        except InvalidEpoch as error:
            return fail(f"what came for {row['id']} is not used: {error.message}")
        path = Path(output or f"registry-{document.number}.epoch.json")
        path.write_bytes(data)
        doubts = _doubts(document, keyring)
        if as_json:
            print_json(row | {"file": str(path), "trusted": not doubts, "doubts": doubts})
        else:
            _say(path, document, doubts)
        return UNTRUSTED if doubts else OK

    return run_command(act, connect)


@registry.command(
    "verify",
    help="Verify an epoch or a proof offline: exit 0 trusted, 3 intact but untrusted, 1 altered or none.",
)
@click.argument("file", type=PATH, metavar="FILE", help="an epoch, or a proof")
@click.option("--after", type=PATH, metavar="FILE", help="an earlier epoch that this one must follow at once")
@click.option("--entries", "with_entries", is_flag=True, help="print the entries too")
@click.option("--keyring", type=PATH, metavar="FILE", help=KEYRING_HELP)
def verify(*, file: str, after: str | None, keyring: str | None, with_entries: bool) -> int:
    try:
        data = Path(file).read_bytes()
        document = read_proof(data) if _is_proof(data) else read_epoch(data)
        if after is not None:
            _check_follows(document, read_epoch(Path(after).read_bytes()))
    except OSError as error:
        return fail(f"a file cannot be read: {error}", code=USAGE)
    except InvalidEpoch as error:
        return fail(f"{file}: ALTERED OR BROKEN: {error.message}")
    doubts = _doubts(document, keyring)
    _say(Path(file), document, doubts)
    if with_entries and isinstance(document, Epoch):
        for entry in document.entries:
            print(f"  {entry.shape}  →  {json.dumps(entry.run)}")
    return UNTRUSTED if doubts else OK


@registry.command("contributions", help="Everything that this workspace has in the registry.")
@json_option(EACH)
@api_options
def contributions(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        rows = client.get(CONTRIBUTIONS)["data"]
        if as_json:
            for row in rows:
                print_json(row)
            return
        cells = ((row["shape"], json.dumps(row["run"]), when(row["seen_at"])) for row in rows)
        print_table(
            ("after the shape", "comes", "last seen"), cells, none="This workspace has nothing in the registry."
        )

    return run_command(act, connect)


@registry.command("withdraw", help="Take all of it back; the next epoch counts without it.")
@click.option("--yes", is_flag=True, help="do not ask")
@json_option(EACH)
@api_options
def withdraw(*, yes: bool, as_json: bool, connect: Connect) -> int:
    question = "Take everything of this workspace out of the registry? Epochs that are published stay. [y/N] "
    if not yes and not agrees(question):
        return fail("nothing was withdrawn; answer y, or pass --yes.")

    def act(client: Client) -> None:
        client.delete(CONTRIBUTIONS)
        print_json({"withdrawn": True}) if as_json else print("Withdrawn; the next epoch counts without it.")

    return run_command(act, connect)


def _epoch_row(client: Client, epoch: str | None) -> dict[str, Any]:
    """The epoch of an id or a number, or the newest. Raises NotFound."""
    if epoch is not None and epoch.startswith("epo_"):
        return dict(client.get(f"{EPOCHS}/{epoch}"))
    for row in client.get(EPOCHS)["data"]:
        if epoch in (None, str(row["epoch"])):
            return dict(row)
    raise NotFound("There is no such epoch; `kolm registry list` shows those there are.")


def _is_proof(data: bytes) -> bool:
    return b'"path":' in data and b'"entries":' not in data


def _check_follows(document: Epoch | Proof, before: Epoch) -> None:
    """Raises InvalidEpoch."""
    if document.head["prev"] != before.head_sha256 or document.head["epoch"] != before.number + 1:
        raise InvalidEpoch(
            f"It does not follow epoch {before.number}: another one stands between, or one was exchanged."
        )


def _doubts(document: Epoch | Proof, keyring: str | None) -> list[str]:
    pinned, problem = kolm_verify.read_keyring(keyring or kolm_verify.default_keyring())
    return [*([problem] if problem else []), *document.doubts(pinned)]


def _say(path: Path, document: Epoch | Proof, doubts: list[str]) -> None:
    print(f"{path}: {'intact, but NOT TRUSTED' if doubts else 'trusted'}")
    for doubt in doubts:
        print("  " + "".join(char if char.isprintable() else "?" for char in doubt))
    head = document.head
    shared = f"{head['n_entries']} entries, each of {head['k']} parties at least"
    print(f"  epoch {head['epoch']}, {head['created_at']}, {shared}")
    print(f"  Merkle root {head['merkle_root']}")
    if isinstance(document, Proof):
        print(f"  has the entry: {document.entry.shape}  →  {json.dumps(document.entry.run)}")
