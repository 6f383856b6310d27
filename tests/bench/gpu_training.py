"""Training at a 7B's true widths and depth on a GPU: `python -m tests.bench.gpu_training --folder DIR`. Prints the
table of docs/benchmarks/gpu-training.md.

A random base with Qwen2.5-7B's config, all layers and its whole vocabulary, in bfloat16, is written into DIR (15 GB)
and trained for a few steps in several ways, each a process of its own. Shown are tokens a second (without the first
two steps), the most memory that torch had in use, and what `training_memory` foretells of both its parts.
"""

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.domain.planning.adapter_sizes import config_numbers, sizes_of_config
from backend.domain.planning.training_memory import Device, least_bytes, step_bytes
from deploy.embedded.home import ROOT
from tests.bench.sizes_world import QWEN_7B
from tests.web_stack import machine

VOCABULARY = 152_064
RANK = 16
WORDS = ["the", "order", "costs", "and", "null", "name", "value", "tea", "coffee"]
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "plain kernels": {"kernels": "plain"},
    "AdamW": {"optimizer": "adamw"},
    "plain kernels, AdamW": {"kernels": "plain", "optimizer": "adamw"},
    "padded, plain kernels, AdamW": {"batching": "padded", "kernels": "plain", "optimizer": "adamw"},
    "flex attention": {"attention": "flex_attention"},
    "qlora": {"variant": "qlora"},
    "dora": {"variant": "dora"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--tokens", type=int, default=4096, help="a step")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--train", choices=list(WAYS), help="one way, in this process")
    chosen = parser.parse_args()
    if chosen.train:
        print(json.dumps(train(chosen.folder, WAYS[chosen.train], chosen.tokens, chosen.steps)), flush=True)
        return
    if not (chosen.folder / "wide" / "config.json").exists():
        write_base(chosen.folder / "wide", chosen.layers)
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {machine()}, load {os.getloadavg()[0]:.1f}\n")
    print("| way | tokens/s | s a step | most memory, GB | foretold: least | and of a step | active |")
    print("|---|---|---|---|---|---|---|")
    for way in chosen.ways:
        print(row(way, chosen), flush=True)


def write_base(folder: Path, n_layers: int) -> None:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from tests.gpu_runners.small_base import _tokenizer

    folder.mkdir(parents=True)
    _tokenizer(folder)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    sizes: dict[str, Any] = QWEN_7B | {"num_hidden_layers": n_layers, "vocab_size": VOCABULARY}
    config = Qwen2Config(**sizes, max_position_embeddings=4096, eos_token_id=0, pad_token_id=0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)


def row(way: str, chosen: argparse.Namespace) -> str:
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.gpu_training", "--folder", str(chosen.folder)]
    command += ["--tokens", str(chosen.tokens), "--steps", str(chosen.steps), "--train", way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        return f"| {way} | failed: {(done.stderr.strip().splitlines() or ['no output'])[-1][:300]} | | | | | |"
    print(done.stdout.strip(), file=sys.stderr, flush=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return (
        f"| {way} | {found['tokens_per_s']:,.0f} | {found['step_s']:.2f} | {found['peak_gb']:.1f} "
        f"| {found['least_gb']:.1f} | {found['step_gb']:.1f} | {found['what']} |"
    )


def train(folder: Path, way: dict[str, Any], n_tokens: int, n_steps: int) -> dict[str, Any]:
    import torch

    from gpu_runners.distill.causal.train import distill_causal
    from gpu_runners.distill.checkpoint import Hooks, StepDone
    from gpu_runners.models.causal_base import open_causal_base
    from tests.gpu_runners.distill.causal.small_answers import jsonl, make_job

    base = open_causal_base("wide", base_dir=folder)
    options = {"epochs": 1, "tokens_per_step": n_tokens, "rank": RANK, "alpha": 2 * RANK, "precision": "auto", **way}
    job = make_job(base, validation_share=0.0, patience=0, **options)
    ends: list[float] = []

    def on_step(done: StepDone) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        ends.append(time.perf_counter())

    _, result = distill_causal(job, jsonl(examples(n_tokens * n_steps)), base=base, hooks=Hooks(on_step=on_step))
    read = sum(one["n_tokens"] for one in result.training_log)
    step_s = (ends[-1] - ends[1]) / (len(ends) - 2)
    active = result.active
    config = config_numbers(json.loads((base.folder / "config.json").read_text()))
    variant = str(options.get("variant", "lora"))
    least = least_bytes(
        sum(path.stat().st_size for path in base.folder.glob("*.safetensors")) // 2,
        sizes_of_config(config, rank=RANK, variant=variant).parameters,
        Device(is_cuda=True, has_bf16=True),
        variant=variant,
        precision="auto",
        config=config,
    )
    return {
        "tokens_per_s": read / len(ends) / step_s,
        "step_s": step_s,
        "steps": len(ends),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0,
        "reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if torch.cuda.is_available() else 0.0,
        "least_gb": least / 1e9,
        "step_gb": step_bytes(config, n_tokens, answer_share=0.3) / 2 / 1e9,
        "what": f"{active['batching']}, {active['attention']}, {active['optimizer']}, "
        f"{'Liger, ' if active['kernels'] else ''}{'recompute' if active['recompute'] else 'activations kept'}",
        "log": result.training_log,
        "active": dataclasses.asdict(active) if dataclasses.is_dataclass(active) else active,
    }


def examples(n_tokens: int) -> list[dict[str, Any]]:
    """About so many tokens: inputs of 60 to 240 words, answers of 10 to 60."""
    draw, out, n = random.Random(3), list[dict[str, Any]](), 0
    while n < n_tokens:
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(*span))) for span in ((60, 240), (10, 60))]
        out.append({"input": texts[0], "output": texts[1], "weight": 1.0})
        n += sum(len(text.split()) for text in texts) + 20
    return out


if __name__ == "__main__":
    main()
