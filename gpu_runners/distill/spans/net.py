"""The net that a fit trains: LoRA on a frozen encoder, and linear heads on the states of its last layer.

    tags.l    (n, 1 + 2 m)  of each token: outside, or begins / goes on with a leaf of layer l
    opens     (n, 1)        of each token: whether a value that begins here begins a new element of its list
    elements.r (n, c)       of each token: its class of the closed set r, if it opens an element of a list
    classes.r (b, c)        of each input: its class of the closed set r, on the unit mean of its states, times 16, as a
                            label student's head

`kinds` (9, d) is a vector of each feature of a token's kind (`gpu_runners.models.spans.kinds`), added to the embedding
of its word.

An input of several windows is several rows of the batch: its tokens are gathered from the windows that count, and the
mean goes over all of them.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpu_runners.distill.label.nets import LoraBody
from gpu_runners.distill.spans.dataset import NOT_ASKED, Example
from gpu_runners.models.label_adapter import SCALE, Head
from gpu_runners.models.merging import to_numpy
from gpu_runners.models.spans.adapter import CLASSES, ELEMENTS, KINDS, OPENS, TAGS, features
from gpu_runners.models.spans.kinds import N_FEATURES
from gpu_runners.models.tensor_files import Array

CLASS_SHARE = 0.5  # of a head of classes, and of `opens`, in the loss; the tags of a layer count 1
HEAD = "head."


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """`tokens` (n, d), the states of the texts' tokens, one text after another; `means` (b, d) of each text, unit
    rows."""

    tokens: Tensor
    means: Tensor


class Heads:
    """Linear heads by their names in `sizes`, zero at first where `begun` has none."""

    def __init__(
        self, sizes: Mapping[str, int], *, width: int, device: torch.device, begun: Mapping[str, Head] | None = None
    ) -> None:
        self.sizes, self.width = sizes, width
        self.trained: dict[str, nn.Parameter] = {}
        for name, rows in sizes.items():
            self.trained[f"{HEAD}{name}.weight"] = nn.Parameter(torch.zeros((rows, width), device=device))
            self.trained[f"{HEAD}{name}.bias"] = nn.Parameter(torch.zeros(rows, device=device))
        with torch.no_grad():
            for name, head in (begun or {}).items():
                self.trained[f"{HEAD}{name}.weight"].copy_(torch.from_numpy(head.weight))
                self.trained[f"{HEAD}{name}.bias"].copy_(torch.from_numpy(head.bias))

    def logits(self, gathered: Gathered) -> dict[str, Tensor]:
        """(n, rows) of the heads of tokens, (b, rows) of those of classes."""
        out = {}
        for name in self.sizes:
            states = SCALE * gathered.means if name.startswith(CLASSES) else gathered.tokens
            out[name] = states @ self.trained[f"{HEAD}{name}.weight"].T + self.trained[f"{HEAD}{name}.bias"]
        return out

    def arrays(self) -> dict[str, Head]:
        return {
            name: Head(
                weight=to_numpy(self.trained[f"{HEAD}{name}.weight"]), bias=to_numpy(self.trained[f"{HEAD}{name}.bias"])
            )
            for name in self.sizes
        }


class SpanNet:
    """`lora` on its body under `heads`. `reads_kinds`: whether the vectors of kinds are trained."""

    def __init__(self, lora: LoraBody, heads: Heads, *, reads_kinds: bool) -> None:
        self.lora, self.heads, self.device = lora, heads, lora.device
        self.trained: dict[str, nn.Parameter] = {**lora.trained, **heads.trained}
        if reads_kinds:
            self.trained[KINDS] = nn.Parameter(torch.zeros((N_FEATURES, heads.width), device=self.device))
            self._features = torch.from_numpy(features()).to(self.device)

    def gather(self, examples: Sequence[Example], *, dropout: float) -> Gathered:
        rows = [window for example in examples for window in example.windows]
        states, mask = self.lora.states(rows, dropout=dropout, added=self._kind_rows(examples))
        return gather_states(states, mask, [(len(example.windows), example.places) for example in examples])

    def kinds(self) -> Array | None:
        """(N_FEATURES, d) of the features of kinds, None where none are read."""
        return to_numpy(self.trained[KINDS]) if KINDS in self.trained else None

    def _kind_rows(self, examples: Sequence[Example]) -> Tensor | None:
        if KINDS not in self.trained:
            return None
        kinds = [kind for example in examples for window in example.kinds for kind in window]
        return (self._features @ self.trained[KINDS]).index_select(0, torch.tensor(kinds, device=self.device))


def gather_states(states: Tensor, mask: Tensor, texts: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> Gathered:
    """Gather the (b, t, d) states of windows, text by text: of each text the number of its windows, and for each of its
    tokens the window and the place in it."""
    at: list[int] = []
    owner: list[int] = []
    row, width = 0, states.shape[1]
    for number, (n_windows, places) in enumerate(texts):
        at += [(row + window) * width + place for window, place in places]
        owner += [number] * n_windows
        row += n_windows
    device, d = states.device, states.shape[2]
    weights = mask.unsqueeze(-1).to(states.dtype)
    owners = torch.tensor(owner, device=device)
    sums = states.new_zeros((len(texts), d)).index_add(0, owners, (states * weights).sum(1))
    counts = states.new_zeros((len(texts), 1)).index_add(0, owners, weights.sum(1))
    tokens = states.reshape(-1, d).index_select(0, torch.tensor(at, dtype=torch.long, device=device))
    return Gathered(tokens=tokens, means=nn.functional.normalize(sums / counts.clamp(min=1.0), dim=-1))


def loss_of(logits: Mapping[str, Tensor], examples: Sequence[Example], *, many: Set[int]) -> Tensor:
    """The weighted mean of the tokens' cross-entropies in each layer, with those of the other heads. `many` are the
    numbers of the rules of which several classes may hold."""
    device = next(iter(logits.values())).device
    weights = torch.tensor([e.weight for e in examples for _ in e.places], device=device)
    total = torch.zeros((), device=device)
    for name, scores in logits.items():
        if name.startswith(TAGS):
            layer = int(name.removeprefix(TAGS))
            wanted = torch.tensor([tag for e in examples for tag in e.tags[layer]], dtype=torch.long, device=device)
            total = total + _token_loss(scores, wanted, weights)
        elif name == OPENS:
            asked = torch.tensor([one for e in examples for one in e.opens], dtype=torch.long, device=device)
            total = total + CLASS_SHARE * _opening_loss(scores[:, 0], asked, weights)
        elif name.startswith(ELEMENTS):
            rule = int(name.removeprefix(ELEMENTS))
            wanted = torch.tensor([one for e in examples for one in e.elements[rule]], dtype=torch.long, device=device)
            is_asked = wanted != NOT_ASKED
            total = total + CLASS_SHARE * _token_loss(scores[is_asked], wanted[is_asked], weights[is_asked])
        else:
            rule = int(name.removeprefix(CLASSES))
            total = total + CLASS_SHARE * _class_loss(scores, rule, examples, is_many=rule in many)
    return total


def _token_loss(scores: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    if not len(wanted):
        return scores.sum() * 0
    losses = nn.functional.cross_entropy(scores, wanted, reduction="none")
    return (losses * weights).sum() / weights.sum()


def _opening_loss(scores: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    is_asked = wanted != NOT_ASKED
    if not bool(is_asked.any()):
        return scores.sum() * 0
    targets, weights = wanted[is_asked].to(scores.dtype), weights[is_asked]
    losses = nn.functional.binary_cross_entropy_with_logits(scores[is_asked], targets, reduction="none")
    return (losses * weights).sum() / weights.sum()


def _class_loss(scores: Tensor, rule: int, examples: Sequence[Example], *, is_many: bool) -> Tensor:
    """Cross-entropy where one class holds; where any number may, the sum of each one's own."""
    asked = [i for i, example in enumerate(examples) if rule in example.classes]
    if not asked:
        return scores.sum() * 0
    device = scores.device
    weights = torch.tensor([examples[i].weight for i in asked], device=device)
    targets = torch.zeros((len(asked), scores.shape[1]), device=device)
    for row, i in enumerate(asked):
        targets[row, list(examples[i].classes[rule])] = 1.0
    chosen = scores.index_select(0, torch.tensor(asked, device=device))
    if is_many:
        losses = nn.functional.binary_cross_entropy_with_logits(chosen, targets, reduction="none").sum(1)
    else:
        losses = nn.functional.cross_entropy(chosen, targets, reduction="none")
    return (losses * weights).sum() / weights.sum()
