"""An exported rule list, run by a real JavaScript engine."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_DRIVER = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages/playwright/driver/node"
_ASK = """
import { readFileSync } from "node:fs";
const { answer } = await import(process.argv[2]);
const texts = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map((text) => answer(text))));
"""


def node() -> str:
    """The path of a node; skips the test where the machine has none."""
    found = shutil.which("node") or (str(_DRIVER) if _DRIVER.exists() else None)
    if found is None:
        pytest.skip("there is no node on this machine")
    return found


def node_answers(module: str, texts: Sequence[str], folder: Path) -> list[str | None]:
    (folder / "rules.mjs").write_text(module, "utf-8")
    (folder / "ask.mjs").write_text(_ASK, "utf-8")
    command = [node(), str(folder / "ask.mjs"), (folder / "rules.mjs").as_uri()]
    # ensure_ascii: half a surrogate pair goes through as \\udXXX
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    made: list[str | None] = json.loads(done.stdout)
    return made
