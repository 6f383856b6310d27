"""What an answer of a span student costs by numpy and by ONNX Runtime, warm, in batches, and as a process, on SNIPS.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m tests.bench.encoder_engines [DATA] [--rounds N] [--kolm FILE]

A student of N random training utterances (400) is trained, or read from FILE where an earlier run left it. Warm times
are of one thread and single texts, tokenising, decoding and assembling included: of each of the first 200 validation
utterances the least of N rounds, the engines in turns text by text, as wall time and as the process's own. A process is
`kolm run` from its start until it has ended, with one text and with many; the rounds go through all of them in turn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from backend.domain.artifact.kolm_verify import read_kolm
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.models.bases import MINILM, open_base
from gpu_runners.models.encoder_runtimes import NumpyRuntime
from gpu_runners.models.onnx.runtime import OnnxRuntime
from tests.bench.banking77_data import data_folder
from tests.bench.exports_spans import trained_kolm
from tests.bench.snips_data import read_snips

ROOT = Path(__file__).resolve().parents[2]
TIMED = 200  # texts
MANY = (32, 64, 128, 256)  # texts of one process
BATCH = 320  # texts that are answered in batches

Times = dict[str, list[tuple[float, float]]]  # of each engine: wall and own seconds


def measure_warm(models: Mapping[str, SpanModel], texts: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    names, best = list(models), {name: [(np.inf, np.inf)] * len(texts) for name in models}
    for turn in range(rounds):
        for i, text in enumerate(texts):
            for k in range(len(names)):
                name = names[(i + turn + k) % len(names)]
                wall, own = time.perf_counter(), time.process_time()
                models[name].predict([text])
                took = (time.perf_counter() - wall, time.process_time() - own)
                best[name][i] = (min(best[name][i][0], took[0]), min(best[name][i][1], took[1]))
    return {name: _summary(times) for name, times in best.items()}


def _summary(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    wall, own = (sorted(one[side] * 1000 for one in times) for side in (0, 1))
    shown = {"wall_p50": wall[len(wall) // 2], "wall_p90": wall[len(wall) * 9 // 10], "own_p50": own[len(own) // 2]}
    return {name: round(value, 2) for name, value in shown.items()}


def measure_batches(models: Mapping[str, SpanModel], texts: Sequence[str], rounds: int) -> dict[str, float]:
    """Own milliseconds a text, of the fastest round."""
    best = dict.fromkeys(models, float("inf"))
    for _ in range(rounds):
        for name, model in models.items():
            own = time.process_time()
            model.predict(texts)
            best[name] = min(best[name], (time.process_time() - own) / len(texts) * 1000)
    return {name: round(value, 2) for name, value in best.items()}


def measure_processes(kolm: Path, texts: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """The median wall and own seconds of `kolm run` by engine, with one text and with many."""
    calls = {"1": [texts[0]]}
    for n in MANY:
        path = kolm.with_name(f"{n}.jsonl")
        path.write_text("".join(json.dumps({"input": text}) + "\n" for text in texts[:n]), "utf-8")
        calls[str(n)] = ["--jsonl", str(path)]
    times: dict[str, Times] = {n: {"numpy": [], "onnx": []} for n in calls}
    for turn in range(rounds + 1):  # the first fills the page cache
        for n, arguments in calls.items():
            for engine in ("numpy", "onnx") if turn % 2 else ("onnx", "numpy"):
                times[n][engine].append(_run(kolm, arguments, engine))
    return {
        n: {
            engine: [round(statistics.median(one[side] for one in rows[1:]), 2) for side in (0, 1)]
            for engine, rows in engines.items()
        }
        for n, engines in times.items()
    }


def _run(kolm: Path, arguments: Sequence[str], engine: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "gpu_runners.cli", "run", str(kolm), "--allow-untrusted", *arguments]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"KOLM_ENCODER_ENGINE": engine}, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"kolm run ended with {process.returncode}")
    return took, usage.ru_utime + usage.ru_stime


def compare(models: Mapping[str, SpanModel], texts: Sequence[str]) -> dict[str, Any]:
    """The largest difference of a logit, and how many answers are the same."""
    own, fast = models["numpy"], models["onnx"]
    gap, n_same = 0.0, 0
    for text in texts:
        read = own.tokenizer.read([text])
        one, other = (next(iter(model.forward.logits(read))) for model in (own, fast))
        gap = max(gap, *(float(np.abs(one[name] - other[name]).max(initial=0.0)) for name in one))
        n_same += own.predict([text])[0]["output"] == fast.predict([text])[0]["output"]
    return {"n": len(texts), "same_answers": n_same, "largest_gap_of_a_logit": gap}


def main() -> int:
    options = _options()
    data = read_snips(Path(options.data) if options.data else data_folder())
    kept = Path(options.kolm) if options.kolm else None
    blob = kept.read_bytes() if kept is not None and kept.exists() else trained_kolm(data, options.n_train)
    if kept is not None and not kept.exists():
        kept.write_bytes(blob)
    base, members = open_base(MINILM), read_kolm(blob).members
    started = time.process_time()
    models = {"numpy": SpanModel.from_members(members, base=base, runtime=NumpyRuntime(base))}
    between = time.process_time()
    models["onnx"] = SpanModel.from_members(members, base=base, runtime=OnnxRuntime(base))
    loads = {"numpy": round(between - started, 2), "onnx": round(time.process_time() - between, 2)}
    texts = [one.text for one in data.validate]
    with tempfile.TemporaryDirectory(prefix="kolm-engines-") as name:
        path = Path(name) / "a.kolm"
        path.write_bytes(blob)
        result: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="minutes"),
            "load_before": round(os.getloadavg()[0], 1),
            "agreement": compare(models, texts),
            "model_load_own_s": loads,
            "warm_ms": measure_warm(models, texts[:TIMED], options.rounds),
            "batch_own_ms_a_text": measure_batches(models, texts[:BATCH], options.rounds),
            "process_s_wall_and_own": measure_processes(path, texts, options.rounds),
            "load_after": round(os.getloadavg()[0], 1),
        }
    print(json.dumps(result, indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--n-train", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kolm", help="where the trained artifact is kept, and read from the next time")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
