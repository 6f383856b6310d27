"""This process and its fellows. Alone unless `accelerate launch` (or torchrun) started several: then gradients are
averaged or parameters sharded by accelerate's engine, DDP or FSDP as its config file says. There is none of our own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    rank: int = 0
    world: int = 1
    accelerator: Any = None

    @property
    def engine(self) -> str:
        return "none" if self.accelerator is None else str(self.accelerator.distributed_type.value)

    def prepare(self, net: nn.Module) -> nn.Module:
        """The module to call in place of `net`."""
        if self.accelerator is None:
            return net
        wrapped: nn.Module = self.accelerator.prepare_model(net)
        return wrapped

    @contextmanager
    def syncing(self, net: nn.Module, *, last: bool) -> Iterator[None]:
        """Gradients are exchanged at a step's last batch alone."""
        if self.accelerator is None or last:
            yield
        else:
            with self.accelerator.no_sync(net):
                yield

    def backward(self, loss: Tensor) -> None:
        if self.accelerator is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.accelerator.backward(loss)

    def sum(self, value: Tensor) -> Tensor:
        if self.accelerator is None:
            return value
        total: Tensor = self.accelerator.reduce(value, reduction="sum")
        return total

    def clip(self, parameters: list[nn.Parameter], norm: float) -> None:
        if self.accelerator is None:
            torch.nn.utils.clip_grad_norm_(parameters, norm)
        else:
            self.accelerator.clip_grad_norm_(parameters, norm)

    def gather(self, called: nn.Module, net: nn.Module) -> dict[str, Tensor]:
        """Trained parameters by name, whole and on the CPU, on every process."""
        names = {name for name, p in net.named_parameters() if p.requires_grad}
        state = self.accelerator.get_state_dict(called)
        return {name: state[name].detach().cpu().clone() for name in names} if self.is_first else {}

    def agree(self, wish: bool) -> bool:
        """Say whether any process wishes it: none may stop while the others wait for its gradients."""
        if self.accelerator is None:
            return wish
        return bool(self.sum(torch.tensor(float(wish), device=self.accelerator.device)) > 0)

    def finish(self) -> None:
        if self.accelerator is not None:
            self.accelerator.end_training()

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def started_processes() -> Processes:
    """Reads the environment that a launcher sets."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return Processes()
    from accelerate import Accelerator  # type: ignore[import-untyped]

    accelerator = Accelerator()
    return Processes(rank=accelerator.process_index, world=accelerator.num_processes, accelerator=accelerator)
