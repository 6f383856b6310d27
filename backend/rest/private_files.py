"""Files with secrets: written whole, readable by their owner alone."""

import os
from pathlib import Path


def replace_private(path: Path, text: str) -> None:
    """Write a 0600 file in one step: a reader, or a crash, meets the old text or the new, also after a power cut."""
    new = path.with_name(f".{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    move(new, path)


def move(source: Path, target: Path) -> None:
    """Rename, and have the folder remember it."""
    os.replace(source, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
