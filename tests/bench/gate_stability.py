"""`python -m tests.bench.gate_stability`: the K-score of one artifact, measured ten times on one machine, every other
time beside programs that never wait, one for each core and one more (in Python, and with products of matrices).

Two artifacts: an adapter of MiniLM that was trained for this (labels), and an adapter of kolm-tiny-1 of random small
numbers (texts; what it answers is no matter, only what answering costs). Their answers count as right and valid each
time, so that K differs by nothing but what was measured. Beside K: the wall time of the same run, and what k-score-1
made of that.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from backend.domain.canonical import sha256_hex
from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.gate_floors import K_MIN_OF, required_ppm
from backend.domain.evaluation.kscore import KScore, k_score
from backend.domain.evaluation.own_time import Clock, Unit, own_time
from backend.domain.jobs.causal_jobs import EvaluateCausalJob
from backend.domain.jobs.runner_jobs import DistillJob, EvaluateJob, TrainOptions
from backend.domain.money.pricing import price_book
from gpu_runners.distill.label.train import distill
from gpu_runners.jobs.causal_evaluation import evaluate_causal
from gpu_runners.jobs.label_evaluation import evaluate
from gpu_runners.models.bases import MINILM, open_base
from gpu_runners.models.causal_adapter import FORMAT, AdapterConfig, CausalAdapter, to_bytes
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.tiny_base.train import ensure
from tests.gpu_runners.small_task import LABELS, jsonl, task_rows

TIMES = 10
TOLERANCE_PPM = 3_000
RUNNER_SKU = "runner.second"
_SPIN = "while True: pass"
_MULTIPLY = "import numpy as np\na = np.ones((600, 600), dtype=np.float32)\nwhile True: a @ a"
HEAD = (
    "| artifact | unit | own us, idle | own us, loaded | K, idle | K, loaded | K max - min | wall p50 us, idle | "
    "loaded | k-score-1 max - min | verdicts |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement of an artifact."""

    score: KScore
    is_loaded: bool
    passed: bool

    @property
    def first_k_ppm(self) -> int:
        """The K-score by the formula of before, of the same run."""
        axes = (self.score.size_bytes / 1024, self.score.p50_us)
        size = max(0.0, 1 - float(np.log2(max(1.0, axes[0]))) / 30)
        cost = 1 / (1 + self.score.p50_us * float(_usd_a_second()) / 1000)
        return round(PPM * (0.55 + 0.15 * (size + 1 / (1 + axes[1] / 1e5) + cost)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    name: str
    kind: str  # of its base
    unit: Unit
    size_bytes: int
    measure: Callable[[], tuple[Clock, list[int], list[int], int, int]]  # clock, times, units, reference, wall p50


def runs_of(artifact: Artifact, times: int = TIMES) -> list[Run]:
    """Measure it so often, every other time beside the load."""
    runs = []
    for i in range(times):
        is_loaded = i % 2 == 1
        with load() if is_loaded else nothing():
            runs.append(_run(artifact, is_loaded=is_loaded))
        seen = runs[-1].score
        print(f"{artifact.name} {i} loaded={is_loaded} {seen.own.own_us} us {seen.composite_ppm}", file=sys.stderr)
    return runs


def spread_ppm(values: Sequence[int]) -> int:
    return max(values) - min(values)


@contextmanager
def load() -> Iterator[None]:
    """A program for each core, and one more, that never wait."""
    n = 1 + (os.cpu_count() or 1)
    alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    programs = [
        subprocess.Popen([sys.executable, "-c", _MULTIPLY if i % 2 else _SPIN], env=os.environ | alone)
        for i in range(n)
    ]
    try:
        time.sleep(1)  # until they do what they are for
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()


@contextmanager
def nothing() -> Iterator[None]:
    yield


def label_artifact() -> Artifact:
    base = open_base(MINILM)
    data = jsonl(task_rows(10))
    options = TrainOptions(epochs=1, precision="fp32").to_json()
    trained_by = DistillJob(base_model=MINILM, labels=LABELS, dataset_sha256=sha256_hex(data), train=options)
    blob, trained = distill(trained_by, data, base=base)
    job = EvaluateJob(
        base_model=MINILM,
        base_model_sha256=base.sha256,
        labels=LABELS,
        adapter_sha256=sha256_hex(blob),
        adapter_config=trained.adapter_config,
        temperature=trained.temperature,
        inputs_sha256="a" * 64,
    )

    def measure() -> tuple[Clock, list[int], list[int], int, int]:
        done = evaluate(job, _inputs(5), blob, base=base)
        units = [1] * len(done.own_ns)
        return Clock(done.own_clock), done.own_ns, units, done.own_reference_ns, round(median(done.latency_us))

    return Artifact(name="MiniLM, labels", kind="encoder", unit=Unit.ANSWER, size_bytes=len(blob), measure=measure)


def text_artifact(folder: Path) -> Artifact:
    path = ensure(folder)
    base = open_causal_base(path.name, base_dir=path.parent)
    adapter, config = _small_adapter(base, json.loads((path / "config.json").read_text()))
    blob = to_bytes(adapter)
    job = EvaluateCausalJob(
        base_model=base.name,
        base_model_sha256=base.sha256,
        system="Say in one short sentence what the customer wants.",
        answer={"type": "text"},
        max_new_tokens=8,
        adapter_sha256=sha256_hex(blob),
        adapter_config=config.to_json(),
        inputs_sha256="a" * 64,
    )

    def measure() -> tuple[Clock, list[int], list[int], int, int]:
        done = evaluate_causal(job, _inputs(2), blob, base=base)
        clock = Clock(done.own_clock)
        return clock, done.own_ns, done.own_tokens, done.own_reference_ns, round(median(done.latency_us))

    return Artifact(name="kolm-tiny-1, texts", kind="causal", unit=Unit.TOKEN, size_bytes=len(blob), measure=measure)


def row_of(artifact: Artifact, runs: Sequence[Run]) -> str:
    """The artifact's line of the table."""
    idle, loaded = ([run for run in runs if run.is_loaded is which] for which in (False, True))

    def both(value: Callable[[Run], int]) -> list[str]:
        return [f"{min(map(value, part)):,} to {max(map(value, part)):,}" for part in (idle, loaded)]

    k = [f"{min(v):.4f} to {max(v):.4f}" for v in ([r.score.composite_ppm / 1e6 for r in p] for p in (idle, loaded))]
    apart = spread_ppm([run.score.composite_ppm for run in runs]) / 1e6
    before = spread_ppm([run.first_k_ppm for run in runs]) / 1e6
    wall = both(lambda run: run.score.p50_us)
    verdicts = f"{sum(run.passed for run in runs)} of {len(runs)} passed"
    cells = [artifact.name, artifact.unit, *both(lambda run: run.score.own.own_us), *k, f"{apart:.4f}", *wall]
    return "| " + " | ".join([*cells, f"{before:.4f}", verdicts]) + " |"


def _run(artifact: Artifact, *, is_loaded: bool) -> Run:
    clock, times, units, reference, p50_us = artifact.measure()
    own = own_time(artifact.unit, clock, times, units, reference_ns=reference)
    score = k_score(
        accuracy_ppm=PPM,
        coverage_ppm=PPM,
        n=len(times),
        size_bytes=artifact.size_bytes,
        own=own,
        cost_nanousd=int(float(_usd_a_second()) * own.answer_us * 1000),
        p50_us=p50_us,
    )
    return Run(score=score, is_loaded=is_loaded, passed=score.composite_ppm >= required_ppm(K_MIN_OF[artifact.kind]))


def _usd_a_second() -> float:
    return float(price_book().prices[RUNNER_SKU].usd_per_unit)


def _inputs(n_each: int) -> bytes:
    texts = [row["input"] for row in task_rows(n_each, start=20)]
    return b"".join(json.dumps({"input": text}).encode() + b"\n" for text in texts)


def _small_adapter(base: CausalBase, sizes: dict[str, int]) -> tuple[CausalAdapter, AdapterConfig]:
    """Rank 8 on the queries and values of all layers."""
    rng = np.random.default_rng(7)
    width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    head = sizes.get("head_dim") or width // heads
    tall = {"q_proj": heads * head, "v_proj": sizes["num_key_value_heads"] * head}
    lora = {
        f"model.layers.{layer}.self_attn.{name}": (
            rng.normal(0, 0.02, (8, width)).astype(np.float32),
            rng.normal(0, 0.02, (rows, 8)).astype(np.float32),
        )
        for layer in range(sizes["num_hidden_layers"])
        for name, rows in tall.items()
    }
    config = AdapterConfig(
        format=FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        tokenizer_sha256=base.tokenizer_sha256,
        rank=8,
        alpha=16,
        variant="lora",
        target_modules=sorted(tall),
        max_tokens=256,
    )
    return CausalAdapter(lora=lora, magnitude={}), config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--only", choices=["labels", "texts"], help="one of the two artifacts")
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n\n{HEAD}")
    with TemporaryDirectory() as folder:
        makers = {"labels": label_artifact, "texts": lambda: text_artifact(Path(folder))}
        for name, make in makers.items():
            if options.only in (None, name):
                artifact = make()
                print(row_of(artifact, runs_of(artifact, options.times)), flush=True)
    print(f"\nload average at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
