"""`kolm trust`: which signing keys `kolm verify` trusts. Pinning is the one moment of trust, so the fingerprints are
shown and compared out of band; afterwards nothing is asked of any network."""

import os
import tempfile
from pathlib import Path
from typing import Any

import click

from backend.domain.artifact import kolm_verify
from backend.domain.artifact.keyrings import WELL_KNOWN, BadKeyring, merge_keyrings, parse_keys
from gpu_runners.cli.options import KEYRING_HELP, PATH
from gpu_runners.cli.terminal import agrees, fail
from gpu_runners.terminal_text import as_line


@click.command()
@click.argument("source", metavar="URL|FILE", help="https://kolm.example, or a keyring file")
@click.option("--keyring", type=PATH, metavar="FILE", help=KEYRING_HELP)
@click.option("--yes", is_flag=True, help="do not ask: the fingerprints were compared already")
def trust(*, source: str, keyring: str | None, yes: bool) -> int:
    """Pin keys after showing their fingerprints."""
    path = Path(keyring or kolm_verify.default_keyring())
    try:
        entries = parse_keys(_fetch(source))
    except (BadKeyring, OSError) as error:
        return fail(f"{source} gives no keys: {error}")
    print("Compare these fingerprints with ones that reached you another way:")
    for entry in entries:
        # whoever made them may have put anything there, a line with a fingerprint that you know among it
        name, start, end = (as_line(str(entry[field]))[:64] for field in ("name", "not_before", "not_after"))
        revoked = f", REVOKED {as_line(str(entry['revoked_at']))[:64]}" if entry["revoked_at"] else ""
        print(f"  {name}, valid {start} to {end}{revoked}")
        print(f"  {fingerprint(entry['keyid'])}")
    if not yes and not agrees(f"Trust {'this key' if len(entries) == 1 else 'these keys'} for .kolm files? [y/N] "):
        return fail("nothing was pinned; answer y, or pass --yes after comparing.")
    try:
        added, replaced = pin(path, entries)
    except (BadKeyring, OSError) as error:
        return fail(f"{path} cannot be changed: {error}")
    print(f"{path}: {added} added, {replaced} renewed.")
    return 0


def _fetch(source: str) -> bytes:
    if not source.startswith(("http://", "https://")):
        return Path(source).read_bytes()
    import httpx

    url = httpx.URL(source)
    if url.path in ("", "/"):
        url = url.copy_with(path=WELL_KNOWN)
    try:
        response = httpx.get(url, timeout=15.0)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise OSError(str(error)) from error
    return response.content


def pin(path: Path, entries: list[dict[str, Any]]) -> tuple[int, int]:
    """Add or replace entries in the keyring at `path`, atomically, mode 0600; (added, replaced). A pinned revocation is
    never taken back. Raises BadKeyring when what stands there is not a keyring."""
    known = parse_keys(path.read_bytes()) if path.exists() else []
    replaced = len({entry["keyid"] for entry in known} & {entry["keyid"] for entry in entries})
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keyring-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(merge_keyrings(known, entries))
    os.replace(temporary, path)
    return len({entry["keyid"] for entry in entries}) - replaced, replaced


def fingerprint(keyid: str) -> str:
    """`3f2a 9c01 ...`: groups of four are what people can compare aloud."""
    return " ".join(keyid[i : i + 4] for i in range(0, len(keyid), 4))
