"""Runs one command with a throw-away Postgres and Valkey: `python -m deploy.embedded.within [--no-servers] manage.py
migrate --check`.

The command is a script or `-m module` for this Python, run as the owner of the tables. `--no-servers` only sets the
environment, for commands that read settings but no data.
"""

import subprocess
import sys
from collections.abc import Sequence

from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT
from deploy.embedded.layout import environ, python
from deploy.embedded.stack import EmbeddedServices


def main(arguments: Sequence[str]) -> int:
    with_servers = list(arguments[:1]) != ["--no-servers"]
    command = python(*(arguments if with_servers else arguments[1:]))
    try:
        services = EmbeddedServices()
        try:
            if with_servers:
                services.stack.start()
            return subprocess.run(
                command, cwd=ROOT, env=environ() | services.env | {"KOLM_DB_ROLE": "owner"}
            ).returncode
        finally:
            services.close()
    except CannotStart as fault:
        print(fault, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
