"""A smaller model that drafts for kolm-tiny-1 in the recipe benches: its first two of five layers, trained whole on the
task's training pairs (a few minutes of one core, once, into build/bench-recipes)."""

import hashlib
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from gpu_runners.models.causal_base import CausalBase, load_weights, open_causal_base
from gpu_runners.models.chat import completion_ids, prompt_ids
from tests.bench.recipe_world import KEPT, World

LAYERS, STEPS, ROWS, RATE = 2, 400, 8, 2e-3
_COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def draft_base(task: World) -> CausalBase:
    parts = [task.base.sha256, task.system, [row.output for row in task.train], LAYERS, STEPS, ROWS, RATE]
    name = "draft-" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    if not (KEPT / name / "model.safetensors").exists():
        _train(task, KEPT / name)
    return open_causal_base(name, base_dir=KEPT)


def _train(task: World, folder: Path) -> None:
    import torch

    torch.manual_seed(7)
    model = load_weights(task.base)
    model.model.layers = model.model.layers[:LAYERS]
    model.config.num_hidden_layers = LAYERS
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:LAYERS]
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    rows = [
        (prompt_ids(task.base, task.system, row.input), completion_ids(task.base, row.output)) for row in task.train
    ]
    rng = random.Random(7)
    for step in range(STEPS):
        loss = _loss(model, rng.sample(rows, ROWS), task.base.pad_id)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * (1 - step / STEPS)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"draft model: {step}/{STEPS} {float(loss):.3f}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        if (task.base.folder / name).is_file():
            shutil.copyfile(task.base.folder / name, folder / name)
    model.save_pretrained(folder)


def _loss(model: Any, rows: list[tuple[list[int], list[int]]], pad: int) -> Any:
    import torch

    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.full((len(rows), longest), pad)
    labels = torch.full((len(rows), longest), -100)
    for i, (prompt, answer) in enumerate(rows):
        both = torch.tensor(prompt + answer)
        ids[i, : len(both)] = both
        labels[i, len(prompt) : len(both)] = both[len(prompt) :]
    # padding stands behind each row, so a causal model needs no mask for what counts
    return model(input_ids=ids, labels=labels).loss
