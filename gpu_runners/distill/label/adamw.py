"""AdamW (Loshchilov and Hutter 2019) by torch's fused kernel.

`torch.optim.AdamW` makes the same step; its first call imports torch's compiler, which is 1.5 s of CPU time in a job
that may last ten.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

BETA_1, BETA_2, EPSILON, WEIGHT_DECAY = 0.9, 0.999, 1e-8, 0.01  # torch's defaults


class AdamW:
    """`moments`: by name the first, the second and the number of steps of each parameter that had a gradient once."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.moments: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move the parameters that have a gradient."""
        moved = {name: one for name, one in self.parameters.items() if one.grad is not None}
        for name, parameter in moved.items():
            if name not in self.moments:
                step = torch.zeros((), device=parameter.device)
                self.moments[name] = torch.zeros_like(parameter), torch.zeros_like(parameter), step
        means, squares, steps = (list(part) for part in zip(*(self.moments[name] for name in moved), strict=True))
        adam(
            list(moved.values()),
            [one.grad for one in moved.values() if one.grad is not None],
            means,
            squares,
            [],
            steps,
            fused=True,
            decoupled_weight_decay=True,
            amsgrad=False,
            beta1=BETA_1,
            beta2=BETA_2,
            lr=learning_rate,
            weight_decay=WEIGHT_DECAY,
            eps=EPSILON,
            maximize=False,
        )
