"""Makes .venv-clients, where other people's clients live for the tests: `python3 -m deploy.clients.setup`. Done once;
then it only compares a stamp.

A venv of its own, because nothing of kolm needs litellm, langchain-openai or instructor, and they pin what kolm pins
too, in other versions. Standard library only, like `deploy.setup`.
"""

import sys
from pathlib import Path

from deploy.setup import CannotSetUp
from deploy.side_venv import SideVenv

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = ROOT / "deploy" / "clients.lock.txt"
VENV = SideVenv(folder=ROOT / ".venv-clients", made_by=(LOCK, Path(__file__)))


def main() -> int:
    try:
        VENV.install(
            "litellm, langchain-openai and instructor (100 MB)",
            ("--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)),
            fault="pip could not install the clients.",
        )
    except CannotSetUp as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
