"""What works with which client: `python -m tests.clients.report --out docs/benchmarks/clients.md` tries them all and
writes the page; it exits 1 where something does not work."""

import argparse
import datetime
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.clients.running import CLIENTS, MISSING, PYTHON, Report, small_servers, try_client

HEAD = """# Clients of the OpenAI-compatible interface

Each client was tried in the version of deploy/clients.lock.txt against `kolm serve` of a span student (a json task of
three fields) and of a label student with four labels. Both are small and real; the run trains them. A client runs in
a process of its own that can reach loopback alone; that it asked for no other address is its last line.

    make test-clients     # or, for this page: .venv/bin/python -m tests.clients.report --out docs/benchmarks/clients.md

"is refused" is a check, too: the server must answer 400 with a message that says what to do.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    if not PYTHON.exists():
        print(MISSING, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, small_servers(Path(folder)) as work:
        reports = [try_client(name, work) for name in CLIENTS]
    out.write_text(page_of(reports, datetime.datetime.now(datetime.UTC).date()), encoding="utf-8")
    n_faults = sum(1 for report in reports for _, fault in report.rows if fault)
    print(f"{out}: {n_faults} of {sum(len(report.rows) for report in reports)} checks failed")
    return 1 if n_faults else 0


def page_of(reports: Sequence[Report], day: datetime.date) -> str:
    parts = [HEAD, f"Measured on {day.isoformat()}, Python {sys.version_info[0]}.{sys.version_info[1]}, on Linux.\n"]
    for report in reports:
        rows = [f"| {check} | {_words(fault)} |" for check, fault in report.rows]
        parts.append("\n".join([f"## {report.package} {report.version}", "", "| tried | |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def _words(fault: str) -> str:
    return "does not work: " + " ".join(fault.split()).replace("|", "/")[:200] if fault else "works"


if __name__ == "__main__":
    sys.exit(main())
