"""One way to train, in a process of its own: `python -m tests.bench.causal_trainer_arms WAY JOB`, where JOB is a JSON
file of `Measure`. Prints one JSON line.

All ways adapt the same layers with the same rank, rate, schedule and number of passes over the same examples, about as
many tokens a step. Timed is from the first step's end to the last one's, scaled to all steps: loading, tokenising and
compiling stand outside. Afterwards one and the same code reads the held-out loss off the trained adapter.
"""

import hashlib
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalJob
from gpu_runners.distill.causal.options import learning_rate_for
from gpu_runners.distill.causal.train import distill_causal
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase, load_weights, open_causal_base
from gpu_runners.models.chat import completion_ids, prompt_ids
from tests.bench.causal_trainer_data import Task, load_task

OURS = {
    "ours, packed": {"batching": "packed"},
    "ours, shared prefix": {"batching": "shared_prefix"},
    "ours, bucketed": {"batching": "bucketed"},
    "ours, padded at random": {"batching": "padded"},
    "ours, auto": {"batching": "auto"},
    "ours, patches of 2 for a third": {"batching": "packed", "patch_size": 2, "patch_share": 0.34},
    "ours, plain": {"batching": "padded", "kernels": "plain", "optimizer": "adamw", "attention": "sdpa"},
}
RANK, ALPHA, WARMUP = 8, 16, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    data: str
    bases: str
    base: str
    task: str
    n_train: int
    n_held: int
    epochs: int
    tokens_per_step: int
    max_tokens: int
    seed: int


@dataclass(slots=True)
class Clock:
    """Wall and CPU seconds at the end of every step."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def tick(self) -> None:
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())

    @staticmethod
    def whole(times: list[float]) -> float:
        """Seconds of all steps, the first taken to be like the others."""
        return (times[-1] - times[0]) * len(times) / (len(times) - 1)


def main() -> None:
    way, measure = sys.argv[1], Measure(**json.loads(Path(sys.argv[2]).read_text()))
    base = open_causal_base(measure.base, base_dir=Path(measure.bases))
    task = load_task(measure.task, Path(measure.data), n_train=measure.n_train, n_held=measure.n_held)
    task = Task(
        system=task.system,
        train=_fitting(task.train, base, task, measure),
        held=_fitting(task.held, base, task, measure),
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        if way in OURS:
            active = _ours(way, measure, base, task, clock, Path(folder))
        else:
            from tests.bench.causal_trainer_peers import PEERS

            active = PEERS[way](measure, base, task, clock, Path(folder))
        held = held_loss(base, task, Path(folder))
    lengths = [len(ids) for ids, _ in (encoded(base, task, row) for row in task.train)]
    print(
        json.dumps(
            {
                "way": way,
                "wall_s": Clock.whole(clock.wall),
                "cpu_s": Clock.whole(clock.cpu),
                "n_steps": len(clock.wall),
                "n_tokens": sum(lengths) * measure.epochs,
                "mean_length": sum(lengths) / len(lengths),
                "longest": max(lengths),
                "n_train": len(task.train),
                "held_loss": held,
                "active": active,
            }
        )
    )


def encoded(base: CausalBase, task: Task, row: dict[str, Any]) -> tuple[list[int], int]:
    """(ids of the whole chat, number of the prompt's)."""
    prompt = prompt_ids(base, task.system, row["input"])
    return [*prompt, *completion_ids(base, row["output"])], len(prompt)


def rate_of(base: CausalBase) -> float:
    return learning_rate_for(base.hidden_size)


def held_loss(base: CausalBase, task: Task, folder: Path) -> float:
    """Nats a completion token, of the adapter in `folder`, one example at a time."""
    import torch
    from peft import PeftModel

    model = PeftModel.from_pretrained(load_weights(base), str(folder)).eval()
    total, n = 0.0, 0
    with torch.no_grad():
        for row in task.held:
            ids, n_prompt = encoded(base, task, row)
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, n_prompt - 1 : -1]
            wanted = torch.tensor(ids[n_prompt:])
            total += float(torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum"))
            n += len(wanted)
    return total / n


def _fitting(rows: list[dict[str, Any]], base: CausalBase, task: Task, measure: Measure) -> list[dict[str, Any]]:
    return [row for row in rows if len(encoded(base, task, row)[0]) <= measure.max_tokens]


def _ours(way: str, measure: Measure, base: CausalBase, task: Task, clock: Clock, folder: Path) -> dict[str, Any]:
    dataset = "".join(json.dumps(row) + "\n" for row in task.train).encode()
    options = CausalOptions(
        rank=RANK,
        alpha=ALPHA,
        learning_rate=rate_of(base),
        epochs=measure.epochs,
        tokens_per_step=measure.tokens_per_step,
        max_tokens=measure.max_tokens,
        warmup_share=WARMUP,
        seed=measure.seed,
        validation_share=0.0,
        patience=0,
        **OURS[way],  # type: ignore[arg-type]
    )
    job = DistillCausalJob(
        base_model=base.name,
        system=task.system,
        dataset_sha256=hashlib.sha256(dataset).hexdigest(),
        options=options.to_json(),
        checkpoint_every_s=1e9,
    )

    def on_step(done: StepDone) -> None:
        clock.tick()

    blob, result = distill_causal(job, dataset, base=base, hooks=Hooks(on_step=on_step))
    config = AdapterConfig.from_json(result.adapter_config)
    write_peft_folder(folder, from_bytes(blob, config), config)
    return result.active | {"n_positions": sum(row["n_positions"] for row in result.training_log)}


if __name__ == "__main__":
    main()
