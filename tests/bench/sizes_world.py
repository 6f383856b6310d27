"""The far ends of the bench of sizes, each a process of its own: `jobs N` queues N training jobs of a new tenant in the
deployment; `base FOLDER LAYERS` writes a random base with Qwen2.5-7B's widths; `train FOLDER RANK STEPS OUT` trains on
it as a runner's child does and prints what came of it.
"""

import dataclasses
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}


def jobs(n: int) -> None:
    from django.db import connection

    from backend.domain.jobs.runner_jobs import RunnerJobKind
    from backend.runner_jobs import leases
    from backend.runner_jobs.leases import Offer
    from backend.tenants.isolation import tenant_scope
    from tests.compile_factories import make_compile
    from tests.factories import make_tenant

    compile = make_compile(make_tenant("sizes"))
    with tenant_scope(compile.tenant_id):
        for _ in range(n):
            work = Offer(kind=RunnerJobKind.DISTILL_CAUSAL, payload={"base_model": "bench"}, inputs=())
            leases.offer(compile.tenant_id, work, compile_id=compile.id, step="distillation")
    connection.close()
    print(json.dumps({"tenant": str(compile.tenant_id)}), flush=True)


def base(folder: Path, n_layers: int) -> None:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from tests.gpu_runners.small_base import CONTEXT, _tokenizer

    folder.mkdir(parents=True)
    n_tokens = _tokenizer(folder)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)  # as the hub has it
    sizes: dict[str, Any] = QWEN_7B | {"num_hidden_layers": n_layers, "vocab_size": n_tokens + 5}
    config = Qwen2Config(**sizes, max_position_embeddings=CONTEXT, eos_token_id=0, pad_token_id=0)
    Qwen2ForCausalLM(config).save_pretrained(folder)


def train(folder: Path, rank: int, n_steps: int, out: Path) -> None:
    """Twice: once to the end, once from the checkpoint that the first left in the middle."""
    from gpu_runners.distill.causal.train import distill_causal
    from gpu_runners.distill.checkpoint import Hooks, Snapshot, StepDone
    from gpu_runners.models.causal_base import open_causal_base
    from tests.gpu_runners.distill.causal.small_answers import jsonl, make_job, rows

    opened = open_causal_base(folder.name, base_dir=folder.parent)
    data = jsonl(rows(4 * n_steps))
    job = make_job(opened, epochs=2, tokens_per_step=128, rank=rank, alpha=2 * rank, validation_share=0.25)
    job = dataclasses.replace(job, checkpoint_every_s=0.0)
    times, written = list[float](), list[tuple[int, float]]()

    def on_step(done: StepDone) -> None:
        times.append(time.monotonic())

    def on_checkpoint(state: Snapshot) -> int:
        began = time.monotonic()
        n_bytes = state.write(out / f"checkpoint-{len(written)}")
        written.append((n_bytes, time.monotonic() - began))
        return 0  # as if it cost nothing: one is made at every step

    hooks = Hooks(on_step=on_step, on_checkpoint=on_checkpoint, clock=lambda: 0.0)
    blob, result = distill_causal(job, data, base=opened, hooks=hooks)
    (out / "adapter").write_bytes(blob)
    at = (len(written) - 1) // 2
    again, resumed = distill_causal(job, data, base=opened, resume=out / f"checkpoint-{at}")
    print(
        json.dumps({
            "n_parameters": result.n_parameters,
            "adapter_bytes": len(blob),
            "checkpoints": written,
            "n_steps": len(times),
            "step_s": (times[-1] - times[0]) / (len(times) - 1),
            "resumed_from": resumed.resumed_from_step,
            "is_same": again == blob,
            "losses": [row["train_loss"] for row in result.training_log],
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            "base_mb": sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6,
        }),
        flush=True,
    )  # fmt: skip


def main(what: str, *arguments: str) -> None:
    if what == "jobs":
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
        import django

        django.setup()
        jobs(int(arguments[0]))
    elif what == "base":
        base(Path(arguments[0]), int(arguments[1]))
    else:
        train(Path(arguments[0]), int(arguments[1]), int(arguments[2]), Path(arguments[3]))


if __name__ == "__main__":
    main(*sys.argv[1:])
