"""The pinned keyring on the reader's side: which signing keys `kolm verify` trusts. Pinning is the one moment of trust,
so the fingerprints are shown and compared out of band; afterwards nothing is asked of any network."""

import os
import tempfile
from pathlib import Path
from typing import Any

from backend.domain.artifact.keyrings import merged, parse_keys


def pin(path: Path, entries: list[dict[str, Any]]) -> tuple[int, int]:
    """Add or replace entries in the keyring at `path`, atomically, mode 0600; (added, replaced). A pinned revocation is
    never taken back. Raises BadKeyring when what stands there is not a keyring."""
    known = parse_keys(path.read_bytes()) if path.exists() else []
    replaced = len({entry["keyid"] for entry in known} & {entry["keyid"] for entry in entries})
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keyring-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(merged(known, entries))
    os.replace(temporary, path)
    return len({entry["keyid"] for entry in entries}) - replaced, replaced


def fingerprint(keyid: str) -> str:
    """`3f2a 9c01 ...`: groups of four are what people can compare aloud."""
    return " ".join(keyid[i : i + 4] for i in range(0, len(keyid), 4))
