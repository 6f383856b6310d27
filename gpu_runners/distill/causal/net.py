"""The base with its LoRA layers as one module that turns a batch into a loss.

Only positions that predict an answer reach the output layer: of a prompt of 200 tokens and an answer of 20 that is a
tenth of the largest matrix product and of the memory that its result takes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpu_runners.distill.causal.batch import IGNORED, Batch
from gpu_runners.distill.causal.divergences import Divergence, divergence_of

_LOGITS_AT_ONCE = 1 << 27  # elements: 512 MB of float32; above, chunks that are computed anew in the backward pass


class CompletionNet(nn.Module):
    """`causal` is a `*ForCausalLM`, maybe inside PEFT's wrapper. `direct`: its logits are its output layer's product
    and nothing more, as `selfcheck` has seen; else its whole forward is run and all its logits are made. `divergence`
    is that of a student's own answers."""

    def __init__(
        self, causal: Any, *, direct: bool = True, varlen: bool = False, divergence: Divergence = Divergence.JSD
    ) -> None:
        super().__init__()
        self.causal, self.direct, self.varlen, self.divergence = causal, direct, varlen, divergence

    def forward(self, batch: Batch) -> Tensor:
        """Summed, weighted cross-entropy of the batch's targets, hard or soft: a float32 scalar in nats. Divide by the
        step's `weight_of` for its loss."""
        states = self.states(batch)
        n_at_once = max(1, _LOGITS_AT_ONCE // max(1, self.core().config.get_text_config().vocab_size))
        total = torch.zeros((), device=states.device)
        for at in range(0, len(states), n_at_once):
            part = slice(at, at + n_at_once)
            probs = None if batch.probs is None else batch.probs[part]
            own = None if batch.on_policy is None else batch.on_policy[part]
            args = (states[part], batch.targets[part], batch.weights[part], probs, own)
            total = total + (
                checkpoint(self._losses, *args, use_reentrant=False) if len(states) > n_at_once else self._losses(*args)
            )
        return total

    def states(self, batch: Batch) -> Tensor:
        """(n, d): the hidden states that predict, or (n, vocabulary) logits where not `direct`."""
        core = self.core()
        out = core.get_decoder()(**self._inputs(batch))[0] if self.direct else core(**self._inputs(batch)).logits
        flat: Tensor = out.reshape(-1, out.shape[-1]).index_select(0, batch.where)
        return flat

    def logits_of(self, states: Tensor) -> Tensor:
        """The output layer's product, (n, vocabulary) float32."""
        logits: Tensor = self.core().get_output_embeddings()(states)
        return logits.float()

    def _losses(
        self, states: Tensor, targets: Tensor, weights: Tensor, probs: Tensor | None, own: Tensor | None
    ) -> Tensor:
        """`probs`: cross-entropy against these distributions, whose gradient is that of the forward KL divergence; of
        the logits only those of `targets` are gathered. `own`: where the divergence of a student's own answers stands
        in its place."""
        logits = self.logits_of(states) if self.direct else states.float()
        if probs is not None:
            likeliest, total = logits.gather(1, targets.clamp_min(0)), logits.logsumexp(dim=-1)
            losses = total - (likeliest * probs).sum(dim=1)
            if own is not None:
                apart = divergence_of(probs, likeliest - total[:, None], kind=self.divergence)
                losses = torch.where(own, apart, losses)
            return (losses * weights).sum()
        if targets.shape[1] == 1:
            return (nn.functional.cross_entropy(logits, targets[:, 0], reduction="none") * weights).sum()
        log_probs = logits.log_softmax(dim=-1).gather(1, targets.clamp_min(0))
        return -(log_probs * (targets != IGNORED) * weights[:, None]).sum()

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        """`use_cache` must be off: with it transformers does not look for packed examples in the position ids, and they
        attend to each other without a word."""
        inputs: dict[str, Any] = {"attention_mask": batch.attention_mask, "use_cache": False}
        if batch.ids.ndim == 2:
            inputs["input_ids"] = batch.ids
        else:
            inputs["inputs_embeds"] = self._patches(batch.ids)
        if batch.position_ids is not None:
            inputs["position_ids"] = batch.position_ids
        if self.varlen and batch.boundaries is not None:
            inputs |= {"cu_seq_lens_q": batch.boundaries, "cu_seq_lens_k": batch.boundaries}
            inputs |= {"max_length_q": batch.longest, "max_length_k": batch.longest}
        return inputs

    def _patches(self, ids: Tensor) -> Tensor:
        """A patch is the mean of its tokens' embeddings (Shao et al. 2024, section 2)."""
        there = (ids >= 0)[..., None]
        embedded = self.core().get_input_embeddings()(ids.clamp_min(0))
        mean: Tensor = (embedded * there).sum(dim=2) / there.sum(dim=2).clamp_min(1)
        return mean.to(embedded.dtype)

    def core(self) -> Any:
        """The `*ForCausalLM` itself."""
        return self.causal.get_base_model() if hasattr(self.causal, "get_base_model") else self.causal


def weight_of(batch: Batch) -> float:
    """Sum of the weights of the batch's target tokens: what the loss of a step is divided by, so that neither packing
    nor the split of a step into batches changes the objective."""
    if batch.probs is not None:  # several targets of one token
        return float(batch.weights.double().sum())
    there = (batch.targets != IGNORED).sum(dim=1).double()
    return float((there * batch.weights.double()).sum())
