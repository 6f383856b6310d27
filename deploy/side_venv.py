"""A venv beside kolm's own, for what only some tests need: made once, then only its stamp is compared.

Standard library only, like `deploy.setup`.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.setup import PIP_FAULTS, CannotSetUp, digest, say

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SideVenv:
    """`made_by` are the files that say what is in it: a change of one makes it be installed again."""

    folder: Path
    made_by: Sequence[Path]

    def install(self, what: str, arguments: Sequence[str], *, fault: str) -> None:
        """`pip install` with these arguments, unless it was done. Raises CannotSetUp; `fault` is its sentence where pip
        said nothing that is known."""
        wanted = digest(b"".join(path.read_bytes() for path in self.made_by) + sys.version.encode())
        stamp = self.folder / ".kolm-packages"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        started = time.monotonic()
        if not (self.folder / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
        say(f"installing {what} ...")
        self._pip(arguments, fault)
        stamp.write_text(wanted)
        say(f"installed in {time.monotonic() - started:.0f} s")

    def _pip(self, arguments: Sequence[str], fault: str) -> None:
        command = [str(self.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        done = subprocess.run(
            [*command, "install", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if done.returncode:
            sentence = next((words for sign, words in PIP_FAULTS if sign in done.stdout), fault)
            last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
            raise CannotSetUp(f"{sentence} pip's last words: {last[:300]}")
