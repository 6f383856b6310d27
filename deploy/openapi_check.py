"""Is docs/openapi.json what the code says? `python -m deploy.openapi_check` exits 1 with the difference when it is not;
`make openapi` renews it.
"""

import difflib
import sys
import tempfile
from pathlib import Path

from deploy.embedded import within

ROOT = Path(__file__).resolve().parent.parent
COMMITTED = ROOT / "docs" / "openapi.json"
MOST_LINES = 60


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "openapi.json"
        command = ["--no-servers", "manage.py", "spectacular", "--validate", "--fail-on-warn"]
        command += ["--format", "openapi-json", "--file", str(fresh)]
        if within.main(command) != 0:
            return 1
        now, then = fresh.read_text(), COMMITTED.read_text() if COMMITTED.exists() else ""
    if now == then:
        return 0
    lines = difflib.unified_diff(then.splitlines(), now.splitlines(), "docs/openapi.json", "the code", lineterm="")
    print("\n".join(list(lines)[:MOST_LINES]))
    print("docs/openapi.json is not what the code says: run `make openapi` and commit it.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
