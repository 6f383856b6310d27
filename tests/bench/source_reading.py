"""What it costs to read and look at a customer's file, beside pandas.

    python -m tests.bench.source_reading [--out docs/benchmarks/source-reading.md]     # make bench-sources

Each file is read in a process of its own, by turns: ours reads, maps, counts labels, duplicates, contradictions and
leaks (`look_at`); pandas alone reads it into a frame (`read_csv`, every cell a text). CPU seconds of the process,
imports included, and its largest memory; of each the median of the rounds, with the least and the most. One file is
made here (200 MB of CSV); one is made to be bad (24 MB whose test part shares every shingle with its training part);
the others are public data sets in $KOLM_DATA or ../shared/data, and are left out with a word where that is missing.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from os import environ, getloadavg
from pathlib import Path

from tests.bench.banking77_data import ROOT, data_folder

READERS = {
    "kolm": (
        "import sys\n"
        "from backend.domain.source_data.reading import read_records\n"
        "from backend.domain.source_data.source import look_at\n"
        "source = look_at(read_records(open(sys.argv[1], 'rb'), sys.argv[1]))\n"
        "n, kept = source.records.n_rows, source.profile.n_usable\n"
    ),
    "pandas": (
        "import sys\nimport pandas\nn = kept = len(pandas.read_csv(sys.argv[1], dtype=str, keep_default_na=False))\n"
    ),
}
TAIL = (
    "import json, resource\n"
    "used = resource.getrusage(resource.RUSAGE_SELF)\n"
    "print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1000, n, kept]))\n"
)
WORDS = ("alpha", "bravo", "charl", "delta", "echos", "foxtr", "golfs", "hotel")


def large(path: Path) -> Path:
    with path.open("w") as file:
        file.write("text,label\n")
        for n in range(2_700_000):
            file.write(f"row {n} some text of a customer about something that is long enough,label {n % 7}\n")
    return path


def hostile(path: Path) -> Path:
    draw = random.Random(1)
    with path.open("w") as file:
        file.write("text,label,split\n")
        for n in range(20_000):
            text = " ".join(draw.choice(WORDS) for _ in range(200))
            file.write(f"{text},{'ab'[n % 2]},{('test', 'train')[n % 2]}\n")
    return path


def files(folder: Path) -> dict[str, Path]:
    data = data_folder(environ)
    public = {
        "BANKING77, training part": data / "banking77" / "train.csv",
        "CLINC150, all parts (JSON)": data / "clinc150" / "data_full.json",
        "SNIPS, training part (JSON lines)": data / "snips" / "train.jsonl",
    }
    there = {name: path for name, path in public.items() if path.exists()}
    for name in public.keys() - there.keys():
        print(f"left out: {name} is not in {data} (set KOLM_DATA)", file=sys.stderr)
    return {"200 MB of CSV": large(folder / "large.csv"), "24 MB made to be slow": hostile(folder / "bad.csv"), **there}


def measure(reader: str, path: Path) -> tuple[float, float, int, int]:
    """(CPU seconds, MB, rows, rows kept)."""
    command = [sys.executable, "-c", READERS[reader] + TAIL, str(path)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    seconds, megabytes, n, kept = json.loads(done.stdout)
    return seconds, megabytes, n, kept


def table(rounds: int) -> list[str]:
    lines = ["| file | rows, kept | kolm: CPU s | kolm: MB | pandas: CPU s | pandas: MB |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files(Path(folder)).items():
            readers = [reader for reader in READERS if reader == "kolm" or path.suffix == ".csv"]
            runs = {reader: [] for reader in readers}
            for _ in range(rounds):
                for reader in readers:
                    runs[reader].append(measure(reader, path))
            cells = []
            for reader in READERS:
                if reader not in runs:
                    cells += ["", ""]
                    continue
                seconds = sorted(run[0] for run in runs[reader])
                middle = f"{statistics.median(seconds):.2f} [{seconds[0]:.2f}, {seconds[-1]:.2f}]"
                cells += [middle, f"{statistics.median(run[1] for run in runs[reader]):,.0f}"]
            _, _, n, kept = runs["kolm"][0]
            lines.append(f"| {name} | {n:,}, {kept:,} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    before = getloadavg()[0]
    lines = table(options.rounds)
    at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {before:.1f} before and {getloadavg()[0]:.1f} after"
    head = [
        "# Reading a customer's file",
        "",
        f"Written by `make bench-sources`, {at}, {options.rounds} rounds, each file in a",
        "process of its own, by turns. kolm reads, maps, counts and looks for leaks; pandas reads alone.",
        "In brackets: the least and the most. How: the docstring of `tests/bench/source_reading.py`.",
        "",
    ]
    text = "\n".join([*head, *lines]) + "\n"
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
