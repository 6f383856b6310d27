"""What the check of isolation measures on random bases where neighbours are kept apart, and where positions run on from
the neighbour's: `python -m tests.bench.isolation_rounding`. On a processor; the bounds are in `selfcheck.TOLERANCE`.

Each line: layers, width, type; then packed against alone as the largest and the root mean square difference, in
standard deviations of the outputs, and the same with the leak.
"""

import argparse
import dataclasses
from typing import Any

import torch
from torch import Tensor

from backend.domain.jobs.causal_jobs import CausalOptions
from gpu_runners.distill.causal.batch import make_batch
from gpu_runners.distill.causal.loading import with_lora
from gpu_runners.distill.causal.net import CompletionNet
from gpu_runners.distill.causal.selfcheck import _example

VOCABULARY = 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=["2x64", "28x512", "28x1536"], help="layers x width")
    for size in parser.parse_args().sizes:
        n_layers, width = map(int, size.split("x"))
        for dtype in (torch.bfloat16, torch.float32):
            kept, leaked = measure(n_layers, width, dtype)
            name = str(dtype).removeprefix("torch.")
            print(f"{size} {name}: apart {kept[0]:.1e} {kept[1]:.1e}, leak {leaked[0]:.1e} {leaked[1]:.1e}", flush=True)


@torch.no_grad()
def measure(n_layers: int, width: int, dtype: torch.dtype) -> tuple[tuple[float, float], tuple[float, float]]:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(1)
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": n_layers}
    config = Qwen2Config(**sizes, num_attention_heads=8, num_key_value_heads=4, vocab_size=VOCABULARY)
    net = CompletionNet(with_lora(Qwen2ForCausalLM(config).to(dtype).eval(), CausalOptions()), varlen=False).eval()
    net.direct = True
    before, own = (_example(n, seed, VOCABULARY) for n, seed in ((7, 1), (12, 2)))
    alone = net.states(make_batch([[own]], packed=False))
    batch = make_batch([[before, own]], packed=True)
    running_on = dataclasses.replace(batch, position_ids=torch.arange(batch.ids.shape[1])[None])
    place = slice(before.n_completion, before.n_completion + own.n_completion)
    return apart(net.states(batch)[place], alone), apart(net.states(running_on)[place], alone)


def apart(a: Tensor, b: Tensor) -> tuple[float, float]:
    """The largest and the root mean square difference."""
    off, spread = a.float() - b.float(), float(b.float().std())
    return float(off.abs().max()) / spread, float(off.square().mean().sqrt()) / spread


if __name__ == "__main__":
    main()
