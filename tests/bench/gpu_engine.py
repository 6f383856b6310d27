"""The engine on a GPU beside transformers: `python -m tests.bench.gpu_engine DATA --base NAME`. Prints
a table of docs/benchmarks/gpu-engine.md.

The same chats of SNIPS, greedy, so many new tokens each, by so many requests at a time: by our engine, by our engine
without cuDNN's attention, and by `model.generate` of padded batches. All in the device's own type. The ways take turns;
tokens a second, their median and range over the rounds.
"""

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from deploy.embedded.home import ROOT
from gpu_runners.engine.sync import generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase, load_weights, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import GenerationRequest
from tests.bench.banking77_data import data_folder
from tests.bench.snips_data import TASK, read_snips
from tests.web_stack import machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--base", default="gemma-3-270m")
    parser.add_argument("--bases", type=Path, default=ROOT / "build" / "bases")
    parser.add_argument("--new", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--at-once", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    base = open_causal_base(chosen.base, base_dir=chosen.bases)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {name}, {machine()}, load {os.getloadavg()[0]:.1f}, {base.name}")
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}\n")
    texts = [one.text for one in read_snips(chosen.data).validate]
    prompts = [tuple(prompt_ids(base, TASK, text)) for text in texts[: 4 * max(chosen.at_once)]]
    print("| at once | way | tokens/s | beside transformers | answers as alone |\n|---|---|---|---|---|")
    alone: list[str] = []
    for n in chosen.at_once:
        ways = {
            "kolm": engine_way(base, n, chosen.new, cudnn=True),
            "kolm, no cuDNN attention": engine_way(base, n, chosen.new, cudnn=False),
            "transformers": plain_way(base, device, n, chosen.new),
        }
        some = prompts[: max(4, 4 * n)]
        rates: dict[str, list[float]] = {way: [] for way in ways}
        texts_of: dict[str, list[str]] = {}
        for turn in range(chosen.rounds + 1):  # the first warms up
            for way in list(ways)[:: 1 if turn % 2 else -1]:
                began = time.perf_counter()
                texts_of[way], tokens = ways[way](some)
                if turn:
                    rates[way].append(tokens / (time.perf_counter() - began))
        alone = alone or texts_of["kolm"]
        for way, seen in rates.items():
            beside = [ours / theirs for ours, theirs in zip(seen, rates["transformers"], strict=True)]
            same = sum(a == b for a, b in zip(texts_of[way], alone, strict=False))
            print(
                f"| {n} | {way} | {statistics.median(seen):,.0f} ({min(seen):,.0f}-{max(seen):,.0f}) "
                f"| {statistics.median(beside):.2f} ({min(beside):.2f}-{max(beside):.2f}) "
                f"| {same}/{min(len(alone), len(some))} |",
                flush=True,
            )


Way = Callable[[Sequence[tuple[int, ...]]], tuple[list[str], int]]


def engine_way(base: CausalBase, n: int, n_new: int, *, cudnn: bool) -> Way:
    engine, rounds = TorchEngine(base, max_running=n), itertools.count()

    def run(prompts: Sequence[tuple[int, ...]]) -> tuple[list[str], int]:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        salt = str(next(rounds))  # nothing is kept from the last round; within one, the common beginning is
        requests = [
            GenerationRequest(id=str(i), prompt=prompt, max_new_tokens=n_new, tenant="bench", cache_salt=salt)
            for i, prompt in enumerate(prompts)
        ]
        answers = generate_all(engine, requests, at_once=n)
        return [one.text for one in answers], sum(one.counts.completion_tokens for one in answers)

    return run


def plain_way(base: CausalBase, device: torch.device, n: int, n_new: int) -> Way:
    dtype = "bfloat16" if device.type == "cuda" else "float32"
    model: Any = load_weights(base, dtype=dtype).to(device).eval()

    def run(prompts: Sequence[tuple[int, ...]]) -> tuple[list[str], int]:
        texts, tokens = [], 0
        torch.backends.cuda.enable_cudnn_sdp(True)
        for first in range(0, len(prompts), n):
            batch = prompts[first : first + n]
            width = max(map(len, batch))
            ids = torch.tensor([[base.pad_id] * (width - len(p)) + list(p) for p in batch], device=device)
            seen = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in batch], device=device)
            ends = sorted(base.eos_ids)
            with torch.inference_mode():
                out = model.generate(
                    ids, attention_mask=seen, max_new_tokens=n_new, do_sample=False, eos_token_id=ends,
                    pad_token_id=base.pad_id,
                )  # fmt: skip
            for row in out[:, width:].tolist():
                kept = next((i for i, token in enumerate(row) if token in ends), len(row))
                tokens += min(kept + 1, len(row))
                texts.append(base.tokenizer.decode(row[:kept]))
        return texts, tokens

    return run


if __name__ == "__main__":
    sys.exit(main())
