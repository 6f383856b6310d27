"""What a training takes of memory, beside what preflight foretells: `python -m tests.bench.training_memory BASE_FOLDER
--tokens 1024`.

A short training of a causal base as a runner's child does it, on this machine's processor, with the spec's defaults
but for `--tokens` (`train.causal.tokens_per_step`), `--rank` and the number of steps. Memory is looked at every 50 ms:
the process's own (anonymous) pages, which nothing but swap can take back, and all that is resident, with the base's
file as it is mapped while it is read. Printed as JSON.
"""

import argparse
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from backend.domain.jobs.base_checks import CheckBaseJob, RunnerReport
from backend.domain.planning.preflight.size_lines import foretold_memory
from tests.web_stack import machine

N_WORDS = 60  # of an example's input


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    watch = Watch()
    watch.start()
    stages = {"at the start": watch.now()}
    expected = foretold(options.base, options.tokens, options.rank)
    report = train(options.base, options.tokens, options.rank, options.steps, watch, stages)
    watch.stop()
    print(
        json.dumps({
            "base": options.base.name,
            "machine": machine(),
            "load": [round(before, 1), round(os.getloadavg()[0], 1)],
            "foretold_mb": round(expected / 1e6),
            "peak_own_mb": round(watch.most["RssAnon"] / 1e6),
            "peak_resident_mb": round(watch.most["VmRSS"] / 1e6),
            "stages_own_mb": {name: round(value / 1e6) for name, value in stages.items()},
            **report,
        }, indent=1),
    )  # fmt: skip


def train(
    folder: Path, n_tokens: int, rank: int, n_steps: int, watch: "Watch", stages: dict[str, int]
) -> dict[str, Any]:
    from gpu_runners.distill.causal.train import distill_causal
    from gpu_runners.distill.checkpoint import Hooks, StepDone
    from gpu_runners.models.causal_base import open_causal_base
    from tests.gpu_runners.distill.causal.small_answers import jsonl, make_job

    stages["libraries imported"] = watch.now()
    base = open_causal_base(folder.name, base_dir=folder.parent)
    stages["tokenizer read"] = watch.now()
    text = " ".join(["order"] * N_WORDS)
    per_example = len(base.tokenizer(text)["input_ids"]) + 30
    n = max(6, n_steps * n_tokens // per_example)
    data = [{"input": f"{i} {text}", "output": '{"name": "tea", "n": 12}', "weight": 1.0} for i in range(n)]
    job = make_job(base, epochs=1, tokens_per_step=n_tokens, rank=rank, validation_share=0.1)

    def on_step(done: StepDone) -> None:
        stages[f"step {done.step}"] = watch.now()

    began = time.monotonic()
    _, result = distill_causal(job, jsonl(data), base=base, hooks=Hooks(on_step=on_step))
    return {
        "n_examples": n,
        "n_parameters": result.n_parameters,
        "tokens_per_step": n_tokens,
        "rank": rank,
        "batching": result.active.get("batching"),
        "training_s": round(time.monotonic() - began),
        "log": result.training_log,
    }


def foretold(folder: Path, n_tokens: int, rank: int) -> int:
    """The bytes of preflight's line, from the base's own files."""
    from backend.domain.planning.preflight.base_lines import bases_of
    from backend.domain.spec.parsing import parse_spec
    from gpu_runners.config import hub_config
    from gpu_runners.models.base_checks import look_at_base
    from tests.backend.domain.spec.test_parsing import document

    causal = {"base": folder.name, "rank": rank, "tokens_per_step": n_tokens}
    spec = parse_spec(document(train={"kind": "causal", "causal": causal}))
    (base,) = bases_of(spec)
    hub = hub_config({"HF_HUB_OFFLINE": "1"})
    looked = look_at_base(CheckBaseJob(base_model=folder.name, kind="causal"), base_dir=folder.parent, hub=hub)
    return foretold_memory(spec, base, looked, RunnerReport(kinds=[], device="cpu"))


class Watch(threading.Thread):
    """The largest values that were seen of this process's memory, bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = {"RssAnon": 0, "VmRSS": 0}
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.wait(0.05):
            self.now()

    def now(self) -> int:
        """The process's own pages now."""
        seen = status()
        self.most = {name: max(value, seen[name]) for name, value in self.most.items()}
        return seen["RssAnon"]

    def stop(self) -> None:
        self._ends.set()
        self.join()


def status() -> dict[str, int]:
    rows = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {
        row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row and row[0].rstrip(":") in ("RssAnon", "VmRSS")
    }


if __name__ == "__main__":
    main()
