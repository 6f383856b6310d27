"""Specs as files: JSON or YAML as plain objects."""

import json
import sys
from pathlib import Path
from typing import Any

from .errors import KolmError


class Unreadable(KolmError):
    """A file cannot be read or written; the message says which and why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unreadable_file")


def read_document(path: str) -> Any:
    """JSON or YAML as plain objects; `-` is standard input. YAML is read without dates (2026-01-01 stays text) and
    without tags."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}.") from error
    if path.endswith(".json"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unreadable(f"{path} is not JSON: {error}.") from error
    import yaml

    class Loader(yaml.SafeLoader):
        """SafeLoader less its dates."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
