"""What an exported label student costs in accuracy, bytes and time: numpy, ONNX, and ONNX in int8, on BANKING77.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m tests.bench.exports [DATA] [--each N] [--rounds N] [--kolm FILE]

A student of N pairs a label (20) is trained once, exported both ways, and asked all 3,080 test texts. Times are of one
thread and single texts, tokenising included: the fastest of N rounds for each of the first 300 texts, of which the
median is taken. The engines take turns text by text, the order turning, so that what else the machine does meets all of
them. A cold start is a process of its own, from its start until it has answered one text. The
word pieces that the training texts use are counted, for what a trimmed table could save.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.jobs.runner_jobs import DistillJob, TrainOptions
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.distill.label.train import distill
from gpu_runners.exports.encoder_student import open_label_student
from gpu_runners.exports.folder import Original
from gpu_runners.exports.to_onnx import export_onnx
from gpu_runners.models.bases import MINILM, open_base
from gpu_runners.models.encoder_tokens import pad
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members
from tests.bench.banking77_data import Banking77, data_folder, read_banking77

Ask = Callable[[str], int]
_COMMAND = "from gpu_runners.cli.main import main; main(['run', sys.argv[1], '--allow-untrusted', 'where is my card'])"
_RUNNER = "import runpy; sys.argv = [sys.argv[{n}] + '/run.py', 'where is my card']; runpy.run_path(sys.argv[0])"
COLD = {
    "numpy": f"import sys; {_COMMAND}",
    "onnx": f"import sys; {_RUNNER.format(n=2)}",
    "int8": f"import sys; {_RUNNER.format(n=3)}",
}
TIMED = 300  # texts


def trained_kolm(data: Banking77, each: int) -> bytes:
    """A signed artifact of the adapter that `each` random pairs of every label train."""
    rng = np.random.default_rng(7)
    rows = []
    for label in data.intents:
        texts = [question.text for question in data.train if question.intent == label]
        rows += [(texts[i], label) for i in rng.permutation(len(texts))[:each]]
    lines = "".join(json.dumps({"input": text, "label": label, "weight": 1.0}) + "\n" for text, label in rows).encode()
    job = DistillJob(
        base_model=MINILM,
        labels=list(data.intents),
        dataset_sha256=hashlib.sha256(lines).hexdigest(),
        train=TrainOptions(student="adapter").to_json(),
        checkpoint_every_s=1e9,
    )
    base = open_base(MINILM)
    blob, result = distill(job, lines, base=base)
    content = members() | {
        "adapter.safetensors": blob,
        "adapter_config.json": canonical_json(result.adapter_config),
        "labels.json": canonical_json(list(data.intents)),
        "calibration.json": canonical_json({"temperature_ppm": round(result.temperature * 1_000_000)}),
    }
    return build_kolm(content, manifest_fields=fields(base={"id": MINILM, "sha256": base.sha256}), key=KEY)


def onnx_asker(folder: Path, model: LabelModel) -> Ask:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])

    def ask(text: str) -> int:
        ids = np.array(model.tokenizer.ids([text]))
        (row,) = session.run(["probabilities"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
        return int(row.argmax())

    return ask


def measure(askers: Mapping[str, Ask], texts: list[str], rounds: int) -> dict[str, float]:
    """The median over texts of the fastest of `rounds` times in ms, of each engine."""
    names = list(askers)
    best: dict[str, list[float]] = {name: [] for name in names}
    for i, text in enumerate(texts):
        times: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds):
            for k in range(len(names)):
                name = names[(i + turn + k) % len(names)]
                began = time.perf_counter()
                askers[name](text)
                times[name].append(time.perf_counter() - began)
        for name in names:
            best[name].append(min(times[name]) * 1000)
    return {name: statistics.median(values) for name, values in best.items()}


def measure_batches(folder: Path, model: LabelModel, texts: list[str], rounds: int) -> dict[str, float]:
    """Milliseconds a text in padded batches of 32, by numpy and ONNX in turns: what `kolm run --jsonl` computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    rows = model.tokenizer.ids(texts[:320])
    best = {"numpy": [float("inf")] * 10, "onnx": [float("inf")] * 10}
    for _ in range(rounds):
        for at in range(10):
            chosen = rows[32 * at : 32 * at + 32]
            began = time.perf_counter()
            model.engine.logits(chosen)
            middle = time.perf_counter()
            ids, mask = pad(chosen, pad_id=0)
            session.run(["logits"], {"input_ids": ids, "attention_mask": mask})
            ended = time.perf_counter()
            best["numpy"][at] = min(best["numpy"][at], middle - began)
            best["onnx"][at] = min(best["onnx"][at], ended - middle)
    return {name: sum(times) / 320 * 1000 for name, times in best.items()}


def vocabulary(data: Banking77, model: LabelModel) -> dict[str, float]:
    """Word pieces that the whole training part uses, and how many of the test texts use another."""
    used = {i for row in model.tokenizer.ids([question.text for question in data.train]) for i in row}
    rows = model.tokenizer.ids([question.text for question in data.test])
    return {"pieces_in_train": len(used), "test_texts_with_others": sum(not set(row) <= used for row in rows)}


def cold_starts(kolm: Path, whole: Path, small: Path, rounds: int) -> dict[str, float]:
    """The median seconds of a process with each engine, in turns."""
    times: dict[str, list[float]] = {name: [] for name in COLD}
    for _ in range(rounds + 1):  # the first fills the page cache
        for name, script in COLD.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", script, kolm, whole, small], check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def parts(path: Path) -> dict[str, int]:
    """Bytes of the model's tensors by what they are."""
    import onnx

    sizes: dict[str, int] = {}
    for tensor in onnx.load(path).graph.initializer:
        name = tensor.name
        kind = (
            "word table" if "word_embeddings" in name
            else "position table" if "positions" in name
            else "head" if name.startswith("head")
            else "layers" if "encoder.layer" in name
            else "other"
        )  # fmt: skip
        sizes[kind] = sizes.get(kind, 0) + len(tensor.raw_data)
    return sizes


def main() -> int:
    options = _options()
    data = read_banking77(Path(options.data) if options.data else data_folder())
    blob = Path(options.kolm).read_bytes() if options.kolm else trained_kolm(data, options.each)
    with tempfile.TemporaryDirectory(prefix="kolm-exports-") as name:
        folder = Path(name)
        (folder / "a.kolm").write_bytes(blob)
        original = Original(kolm=read_kolm(blob), sha256=sha256_hex(blob))
        export_onnx(original, folder / "whole", base_dir=None, int8=False)
        export_onnx(original, folder / "small", base_dir=None, int8=True)
        model = open_label_student(original.kolm, base_dir=None).model
        numbers = {label: i for i, label in enumerate(model.labels)}
        askers: dict[str, Ask] = {
            "numpy": lambda text: int(model.probabilities(model.tokenizer.ids([text]))[0].argmax()),
            "onnx": onnx_asker(folder / "whole", model),
            "int8": onnx_asker(folder / "small", model),
        }
        texts = [question.text for question in data.test]
        gold = np.array([numbers[question.intent] for question in data.test])
        times = measure(askers, texts[:TIMED], options.rounds)
        answers = {name: [ask(text) for text in texts] for name, ask in askers.items() if name != "numpy"}
        answers["numpy"] = [numbers[row["label"]] for row in model.predict(texts)]
        batches = measure_batches(folder / "whole", model, texts, options.rounds)
        cold = cold_starts(folder / "a.kolm", folder / "whole", folder / "small", options.rounds)
        result: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="minutes"),
            "load": os.getloadavg()[0],
            "n_test": len(texts),
            "tokens_p50": statistics.median(map(len, model.tokenizer.ids(texts))),
            "right": {name: int((np.array(rows) == gold).sum()) for name, rows in answers.items()},
            "as_numpy": {
                name: int((np.array(rows) == np.array(answers["numpy"])).sum()) for name, rows in answers.items()
            },
            "warm_ms": times,
            "batch_ms": batches,
            "cold_s": cold,
            "vocabulary": vocabulary(data, model),
            "model_bytes": {which: (folder / which / "model.onnx").stat().st_size for which in ("whole", "small")},
            "tokenizer_bytes": (folder / "whole" / "tokenizer.json").stat().st_size,
            "parts": {which: parts(folder / which / "model.onnx") for which in ("whole", "small")},
        }
    print(json.dumps(result, indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?")
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kolm", help="an artifact that an earlier run trained")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
