"""`python -m tests.bench.recipe_projection`: what verifying k drafted tokens costs a model of 7B's shape, and what a
pack's replayed acceptance would make of that. PROJECTED: the weights are random, the acceptance comes from a replay.

    speed-up = tokens per step / ((1 - d) + d * t(1 + k) / t(1))

with d the share of forward passes that verify a draft, k the drafted tokens of one of these (rounded up to a measured
k), t(n) the time of a forward pass over n tokens behind `--context` cached ones. Run it where there is a GPU; on a CPU
it only shows that it works (--shape tiny).
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

SHAPES: dict[str, dict[str, int]] = {
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 512,
    },
}
LENGTHS = (1, 2, 3, 5, 9, 17, 33)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recipe_projection", description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="7b")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--tokens-per-step", type=float, default=0.0, help="of a replay (tests.bench.recipe_replay)")
    parser.add_argument("--drafted-per-draft", type=float, default=0.0)
    parser.add_argument("--draft-share", type=float, default=1.0, help="of the forward passes")
    chosen = parser.parse_args(arguments)
    table = {batch: forward_times(chosen.shape, batch, chosen.context, chosen.repeats) for batch in chosen.batches}
    print("| batch | " + " | ".join(f"t({n}) / t(1)" for n in LENGTHS[1:]) + " | t(1) ms |")
    print("|" + "---|" * (len(LENGTHS) + 1))
    for batch, times in table.items():
        ratios = " | ".join(f"{times[n] / times[1]:.2f}" for n in LENGTHS[1:])
        print(f"| {batch} | {ratios} | {1000 * times[1]:.2f} |")
    if chosen.tokens_per_step:
        for batch, times in table.items():
            gain = projected(times, chosen.tokens_per_step, chosen.drafted_per_draft, chosen.draft_share)
            print(f"batch {batch}: projected speed-up {gain:.2f}")
    return 0


def projected(times: dict[int, float], tokens_per_step: float, drafted: float, share: float) -> float:
    """The speed-up over one token a step. Raises ValueError for a draft longer than was measured."""
    measured = [n for n in LENGTHS if n >= 1 + drafted]
    if not measured:
        raise ValueError(f"drafts of {drafted} tokens were not timed")
    return tokens_per_step / ((1 - share) + share * times[measured[0]] / times[1])


def forward_times(shape: str, batch: int, context: int, repeats: int) -> dict[int, float]:
    """Median seconds of a forward pass over n tokens a row, by n."""
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    torch.manual_seed(7)
    with torch.device(where):
        model: Any = LlamaForCausalLM(LlamaConfig(**SHAPES[shape], max_position_embeddings=4096)).to(dtype).eval()
        prompt = torch.randint(0, SHAPES[shape]["vocab_size"], (batch, context))
    found: dict[int, list[float]] = {n: [] for n in LENGTHS}
    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        model(prompt, past_key_values=cache, use_cache=True)
        for _ in range(repeats + 2):
            for n in LENGTHS:
                tokens = torch.randint(0, SHAPES[shape]["vocab_size"], (batch, n), device=where)
                _wait(where)
                began = time.perf_counter()
                model(tokens, past_key_values=cache, use_cache=True)
                _wait(where)
                found[n].append(time.perf_counter() - began)
                cache.crop(-n)
    return {n: statistics.median(values[2:]) for n, values in found.items()}


def _wait(where: Any) -> None:
    import torch

    if where.type == "cuda":
        torch.cuda.synchronize(where)


if __name__ == "__main__":
    sys.exit(main())
