"""The saved logins of this machine: `~/.config/kolm/config.json` (KOLM_CONFIG), readable by its owner only.

A saved key is sent to the address that it was saved with and to no other: whoever names another address names a key
for it too.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import KolmError

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_PROFILE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    url: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address to ask, and as whom; `key` None is nobody."""

    url: str
    key: str | None


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    if environ.get("KOLM_CONFIG"):
        return Path(environ["KOLM_CONFIG"]).expanduser()
    base = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config"
    return Path(base) / "kolm" / "config.json"


def access(
    api_key: str | None, base_url: str | None, profile: str | None, environ: Mapping[str, str] = os.environ
) -> Access:
    """Look up the access: an argument wins over KOLM_API_KEY and KOLM_API_URL, those over the saved login `profile`
    (KOLM_PROFILE). A profile that is named wins over the environment."""
    named = profile or environ.get("KOLM_PROFILE")
    saved = load(named or DEFAULT_PROFILE, environ)
    if named and saved is None:
        raise KolmError(f"There is no saved login {named!r}; make it with `kolm login --profile {named}`.")
    from_environ = {} if profile else environ
    url = base_url or from_environ.get("KOLM_API_URL") or (saved.url if saved else DEFAULT_URL)
    key = api_key or from_environ.get("KOLM_API_KEY")
    if key is None and saved is not None and _same(saved.url, url):
        key = saved.key
    return Access(url=url.rstrip("/"), key=key or None)


def load(profile: str, environ: Mapping[str, str] = os.environ) -> Profile | None:
    entry = _read(config_path(environ))["profiles"].get(profile)
    return Profile(url=str(entry["url"]), key=str(entry["key"])) if entry else None


def save(profile: str, entry: Profile, environ: Mapping[str, str] = os.environ) -> Path:
    """Add or replace one login, atomically, mode 0600."""
    path = config_path(environ)
    document = _read(path)
    document["profiles"][profile] = {"url": entry.url, "key": entry.key}
    _write(path, document)
    return path


def forget(profile: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Delete a saved login; say whether there was one."""
    path = config_path(environ)
    document = _read(path)
    if document["profiles"].pop(profile, None) is None:
        return False
    _write(path, document)
    return True


def _same(one: str, other: str) -> bool:
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        entries = document["profiles"]
        if not all({"url", "key"} <= set(entry) for entry in entries.values()):
            raise ValueError("a profile has a url and a key")
    except FileNotFoundError:
        return {"profiles": {}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KolmError(f"{path} cannot be read as saved logins ({error}); correct it, or remove it.") from error
    return {"profiles": dict(entries)}


def _write(path: Path, document: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # mode 0600 from the start
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2) + "\n")
        Path(temporary).replace(path)
    except OSError as error:
        raise KolmError(f"{path} cannot be written: {error.strerror or error}.") from error
