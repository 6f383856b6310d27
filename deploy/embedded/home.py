"""$KOLM_HOME: where the embedded stack keeps its data, logs, secrets and the note of what is running."""

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from deploy.embedded.faults import CannotStart

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED_BYTES = 1 << 30
# what `wipe` removes; anything else in the folder is the user's
OURS = (
    "pg",
    "pg.new",
    "valkey",
    "blobs",
    "server",
    "run",
    "logs",
    "secrets.json",
    "signing_key.pem",
    "keyring.json",
    "demo.json",
    "artifacts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    path: Path

    @classmethod
    def from_environ(cls, variables: Mapping[str, str]) -> "Home":
        return cls(path=Path(variables.get("KOLM_HOME") or ROOT / ".kolm").absolute())

    @property
    def pgdata(self) -> Path:
        return self.path / "pg"

    @property
    def valkey(self) -> Path:
        return self.path / "valkey"

    @property
    def blobs(self) -> Path:
        return self.path / "blobs"

    @property
    def server(self) -> Path:
        """Fetched artifacts, and usage that the backend does not know of yet."""
        return self.path / "server"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def secrets(self) -> Path:
        return self.path / "secrets.json"

    @property
    def signing_key(self) -> Path:
        return self.path / "signing_key.pem"

    @property
    def keyring(self) -> Path:
        return self.path / "keyring.json"

    @property
    def state(self) -> Path:
        return self.path / "run" / "stack.json"

    def heartbeat(self, name: str) -> Path:
        """The file that a part that listens nowhere touches while it moves."""
        return self.path / "run" / f"{name}.alive"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make the folders, private to this user. Raises CannotStart when the place cannot be written or is nearly
        full.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in (self.path / "run", self.logs, self.blobs):
                part.mkdir(mode=0o700, exist_ok=True)
        except OSError as fault:
            raise CannotStart(
                f"{self.path} cannot be written ({fault.strerror}); choose another place with KOLM_HOME."
            ) from None
        free = shutil.disk_usage(self.path).free
        if free < NEEDED_BYTES:
            raise CannotStart(
                f"Only {free >> 20} MiB are free at {self.path}; kolm needs {NEEDED_BYTES >> 20} MiB there (KOLM_HOME)."
            )

    def wipe(self) -> None:
        """Remove everything the stack has written here, and the folder if nothing else is left in it."""
        retired_keys = [path.name for path in self.path.glob("signing_key.*.pem")]
        for name in (*OURS, *retired_keys):
            part = self.path / name
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def lock(self) -> IO[str] | None:
        """The one supervisor's lock, or None when another holds it. The kernel drops it however its holder dies."""
        self.state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = (self.path / "run" / "supervisor.lock").open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            return None
        return handle

    def is_up(self) -> bool:
        if not self.state.parent.exists():
            return False
        handle = self.lock()
        if handle is not None:
            handle.close()
        return handle is None

    def read_state(self) -> dict[str, Any]:
        """The supervisor's note, or {} when there is none; a torn file cannot occur, it is replaced whole."""
        try:
            state: dict[str, Any] = json.loads(self.state.read_text())
        except FileNotFoundError:
            return {}
        return state

    def write_state(self, state: Mapping[str, Any]) -> None:
        replace_private(self.state, json.dumps(state, indent=2) + "\n")


def replace_private(path: Path, text: str) -> None:
    """Write a 0600 file in one step: a reader, or a crash, meets the old text or the new."""
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    new.replace(path)
