"""What an exported span student costs in accuracy, bytes and time: numpy, ONNX, and ONNX in int8, on SNIPS.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m tests.bench.exports_spans [DATA] [--n-train N] [--rounds N]

A student of N random training utterances (400) is trained once, exported both ways, and asked every validation one.
The logits of each engine become answers by the same code, that of `kolm run`, so the figures compare engines and not
the greedy runners. Times are of one thread and single texts, tokenising and decoding included: the fastest of N rounds
for each of the first 200 texts, of which the median is taken, the engines in turns.
"""

import argparse
import copy
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backend.domain.answers.json_values import answer_text, field_scores, is_exact, parse_answer
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.canonical import sha256_hex
from backend.domain.extraction.learning import learn_plan
from backend.domain.jobs.span_jobs import DistillSpansJob, SpanOptions
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.exports.folder import Original
from gpu_runners.exports.span_student import open_span_student
from gpu_runners.exports.to_onnx import export_onnx
from gpu_runners.models.bases import MINILM, open_base
from gpu_runners.models.spans.tokens import SpanTokens
from tests.bench.banking77_data import data_folder
from tests.bench.exports import measure
from tests.bench.snips_data import Snips, Utterance, read_snips
from tests.gpu_runners.small_spans import packed_spans

TIMED = 200  # texts


class OnnxForward:
    """`SpanForward` by ONNX Runtime, of texts of one window."""

    device, batch = "cpu", 1

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def logits(self, texts: Sequence[SpanTokens]) -> Iterator[dict[str, Any]]:
        for text in texts:
            (window,) = text.windows
            ids = np.array([window.ids])
            kinds = np.array([window.kinds])
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_kinds": kinds}
            values = self._session.run(self._names, inputs)
            own = slice(window.first, window.first + len(window.tokens))
            pairs = zip(self._names, values, strict=True)
            yield {name: value[0] if value.ndim == 2 else value[0, own] for name, value in pairs}


def trained_kolm(data: Snips, n_train: int) -> bytes:
    """A signed artifact of the adapter that `n_train` random training utterances leave."""
    held = {one.text for one in data.validate}
    rows = [one for one in data.train if one.text not in held]
    pairs = [(one.text, one.answer) for one in random.Random(7).sample(rows, n_train)]
    plan = learn_plan(data.schema, pairs)
    lines = "".join(
        json.dumps({"input": text, "output": answer_text(answer, data.schema), "weight": 1.0}) + "\n"
        for text, answer in pairs
    ).encode()
    job = DistillSpansJob(
        base_model=MINILM,
        schema=data.schema,
        plan=plan.to_json(),
        dataset_sha256=hashlib.sha256(lines).hexdigest(),
        options=SpanOptions().to_json(),
        checkpoint_every_s=1e9,
    )
    blob, result = distill_spans(job, lines, base=open_base(MINILM))
    return packed_spans(
        blob,
        config=result.adapter_config,
        plan=plan,
        calibration=result.calibration,
        base={"id": MINILM, "sha256": result.base_model_sha256},
        beside={},
        schema=data.schema,
    )


def accuracy(answers: Sequence[str], gold: Sequence[Utterance]) -> dict[str, float]:
    values = [parse_answer(answer) for answer in answers]
    f1 = [field_scores(value, one.answer).f1_ppm / 1e6 for value, one in zip(values, gold, strict=True)]
    exact = sum(is_exact(value, one.answer) for value, one in zip(values, gold, strict=True))
    return {"exact": exact, "mean_field_f1": round(float(np.mean(f1)), 4)}


def ask(model: SpanModel, text: str) -> int:
    return len(model.predict([text])[0]["output"])


def main() -> int:
    options = _options()
    data = read_snips(Path(options.data) if options.data else data_folder())
    blob = trained_kolm(data, options.n_train)
    original = Original(kolm=read_kolm(blob), sha256=sha256_hex(blob))
    with tempfile.TemporaryDirectory(prefix="kolm-exports-") as name:
        folder = Path(name)
        models = {"numpy": open_span_student(original.kolm, base_dir=None).model}
        for kind, int8 in (("onnx", False), ("int8", True)):
            export_onnx(original, folder / kind, base_dir=None, int8=int8)
            models[kind] = copy.copy(models["numpy"])
            models[kind].forward = OnnxForward(folder / kind / "model.onnx")  # type: ignore[assignment]
        texts = [one.text for one in data.validate]
        times = measure({kind: partial(ask, model) for kind, model in models.items()}, texts[:TIMED], options.rounds)
        answers = {kind: [model.predict([text])[0]["output"] for text in texts] for kind, model in models.items()}
        result: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="minutes"),
            "load": os.getloadavg()[0],
            "n_test": len(texts),
            "warm_ms": {kind: round(value, 2) for kind, value in times.items()},
            "bytes": {kind: (folder / kind / "model.onnx").stat().st_size for kind in ("onnx", "int8")},
        }
        for kind, own in answers.items():
            same = sum(one == other for one, other in zip(own, answers["numpy"], strict=True))
            result[kind] = accuracy(own, data.validate) | {"as_numpy": same}
    print(json.dumps(result, indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--n-train", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
