"""Drafts inside vLLM: the proposer that `plan` names as its `custom_class`, one in every worker.

    speculative_config = {"method": "custom_class", "model": "gpu_runners.speculation.vllm.plugin.RecipeProposer",
                          "num_speculative_tokens": 16}
    additional_config = {"kolm": HookOptions(...).to_json()}

Each request has its own drafter over its own artifact's pack, what its constraint forces and its prompt; nothing of one
request is drafted for another. vLLM verifies: it keeps a drafted token where its model says the same (greedy) or with
the probability that its model gives it, else draws from the rest. A pack that does not fit proposes nothing, nor does
anything where a request samples by its own seed: verification draws other numbers than plain sampling. No error leaves
here (`vllm_guard`).

A schema's tokens come from a matcher of ours beside vLLM's own, which is in its scheduler and out of reach here.
vLLM's classes are only touched in `vllm_repairs`. Held to vLLM 0.32.0 by tests/vllm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from gpu_runners.models.constraints import Constraints
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.vllm.repairs import hand_over, repair_cpu_sampling
from gpu_runners.speculation.vllm.sequences import VllmSequences
from gpu_runners.speculation.vllm.wire import OPTIONS, HookOptions, read_token_texts


class RecipeProposer:
    """The proposer that vLLM makes of `speculative_config`. `runner` and `fed` are set before every call
    (`vllm_repairs`). What is wrong with the options ends the start."""

    def __init__(self, vllm_config: Any) -> None:
        self.runner: Any = None
        self.fed: Mapping[str, Sequence[int]] = {}
        options = HookOptions.from_json(vllm_config.additional_config[OPTIONS])
        most = int(vllm_config.speculative_config.num_speculative_tokens)  # vLLM's buffers hold no more
        options = replace(options, max_draft=min(options.max_draft, most))
        shelf = PackShelf(lambda: read_token_texts(options.token_texts), tokenizer_sha256=options.tokenizer_sha256)
        model = vllm_config.model_config
        n_vocab, context = int(model.get_vocab_size()), int(model.max_model_len)
        drafts = BatchDrafter(shelf, end_ids=options.eos_ids, n_vocab=n_vocab)
        self._sequences = VllmSequences(drafts, options, _constraints(model, options), context=context)
        hand_over(lambda drafter: isinstance(drafter, RecipeProposer))
        repair_cpu_sampling()

    def load_model(self, *_: Any) -> None:
        """There is no draft model."""

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: npt.NDArray[Any],
        token_ids_cpu: npt.NDArray[Any],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        return self._sequences.propose(self.runner, self.fed, sampled_token_ids, num_tokens_no_spec, token_ids_cpu)

    def draft_stats(self, request_id: str) -> dict[str, Any]:
        return self._sequences.draft_stats(request_id)


class DraftStatsExtension:
    """The extension that vLLM adds to its worker (`worker_extension_cls`): how our engine reaches the proposer of
    another process."""

    model_runner: Any

    def kolm_drafts_of(self, request_id: str) -> dict[str, Any]:
        draft_stats: dict[str, Any] = self.model_runner.drafter.draft_stats(request_id)
        return draft_stats


def _constraints(model: Any, options: HookOptions) -> Constraints | None:
    from vllm.tokenizers.registry import cached_tokenizer_from_config

    tokenizer = cached_tokenizer_from_config(model)
    if not hasattr(tokenizer, "backend_tokenizer"):
        return None
    return Constraints(tokenizer, vocab_size=int(model.get_vocab_size()), eos_ids=options.eos_ids)
