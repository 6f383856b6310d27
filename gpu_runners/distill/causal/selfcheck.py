"""A few short batches through the base that was really loaded, before anything is trained on it.

Whether packed examples are kept apart is decided deep inside a library, by the architecture, the attention kernel and
options that fail without a word. So it is measured: an example must give the same outputs alone, packed, and packed
behind another neighbour. And the output layer alone must give what the whole model gives.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_runners.distill.causal.batch import Batch, make_batch
from gpu_runners.distill.causal.dataset import Example
from gpu_runners.distill.causal.net import CompletionNet
from gpu_runners.models.device import Choice, Fallback

_NEXT = {"shared_prefix": "packed", "packed": "bucketed"}
# of the outputs' spread; leaks were of the order of the spread itself. Rounding grows with depth: in bf16 the 28 random
# layers of a 7B gave 0.16 between packed and alone where they differed most, on an H200 that kept neighbours apart to
# the bit; so what differs on the mean is compared
TOLERANCE = {"fp32": 2e-3, "bf16": 8e-2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Root mean square differences, as shares of the outputs' standard deviation. None: the base cannot be run that
    way."""

    direct_head: float | None
    packed: float | None
    neighbour: float | None

    def is_isolated(self, precision: str) -> bool:
        limit = TOLERANCE[precision]
        return self.packed is not None and self.neighbour is not None and max(self.packed, self.neighbour) <= limit

    def to_json(self) -> dict[str, Any]:
        """Texts, not floats: it is signed with the receipt."""
        return {name: None if value is None else f"{value:.1e}" for name, value in dataclasses.asdict(self).items()}


def check(net: CompletionNet, choice: Choice, *, vocab_size: int, device: torch.device) -> tuple[Choice, Checked]:
    """Measure, and choose what the measurement allows: packed rows in place of those that share a prefix where that
    changes what is computed, bucketed batches in place of packed ones where a neighbour is seen. Sets `net.direct`.
    Leaves `net` in eval mode."""
    net.eval()
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=choice.precision == "bf16"):
        net.direct = False
        head = _direct_head(net, vocab_size, device)
        net.direct = head is not None and head <= TOLERANCE[choice.precision]
        checked = _isolation(net, vocab_size, device, choice, head)
        while choice.batching in _NEXT and not checked.is_isolated(choice.precision):
            got = _NEXT[choice.batching]
            why = f"an example's outputs depend on its neighbours on this base or kernel ({checked.to_json()})"
            note = Fallback(wanted=choice.batching, got=got, why=why)
            choice = dataclasses.replace(choice, batching=got, fallbacks=(*choice.fallbacks, note))
            checked = _isolation(net, vocab_size, device, choice, head) if got in _NEXT else checked
    return choice, checked


def _isolation(
    net: CompletionNet, vocab_size: int, device: torch.device, choice: Choice, head: float | None
) -> Checked:
    shared = 3 if choice.batching == "shared_prefix" else 0
    one, two, three, four = (_example(n, seed, vocab_size) for n, seed in ((7, 1), (12, 2), (9, 3), (7, 4)))
    one_row = not choice.row_tokens

    def states(*examples: Example, packed: bool = True) -> Tensor | None:
        made = make_batch(
            [examples], packed=packed, n_shared=shared if packed else 0, boundaries=packed and one_row and not shared
        )
        return _states(net, made.to(device))

    alone, packed, beside = states(two, packed=False), states(one, two, three), states(four, two, three)
    if alone is None or packed is None or beside is None:
        return Checked(direct_head=head, packed=None, neighbour=None)
    own = slice(one.n_completion, one.n_completion + two.n_completion)
    return Checked(direct_head=head, packed=_apart(packed[own], alone), neighbour=_apart(packed[own], beside[own]))


def _direct_head(net: CompletionNet, vocab_size: int, device: torch.device) -> float | None:
    batch = make_batch([[_example(12, 2, vocab_size)]], packed=False).to(device)
    whole = _states(CompletionNet(net.causal, direct=False), batch)
    states = _states(CompletionNet(net.causal, direct=True), batch)
    return None if whole is None or states is None else _apart(net.logits_of(states), whole.float())


def _states(net: CompletionNet, batch: Batch) -> Tensor | None:
    """None where the base's forward does not take such a batch (no position ids, say)."""
    try:
        return net.states(batch)
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        return None


def _apart(a: Tensor, b: Tensor) -> float:
    spread = float(b.float().std())
    return float((a.float() - b.float()).square().mean().sqrt()) / spread if spread > 0 else float("inf")


def _example(n: int, seed: int, vocab_size: int) -> Example:
    """Arbitrary tokens after three common ones; half of them are the prompt."""
    generator = torch.Generator().manual_seed(seed)
    ids = (*range(3), *torch.randint(0, vocab_size, (n - 3,), generator=generator).tolist())
    return Example(text="", ids=ids, n_prompt=n // 2, weight=1.0)
