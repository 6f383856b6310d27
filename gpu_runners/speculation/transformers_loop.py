"""Drafts in transformers' own `generate`, for one prompt at a time: its `custom_generate` takes a callable, and this is
one, on public calls alone (forward, DynamicCache, crop).

    loop = DraftingLoop(drafter)
    ids = model.generate(input_ids, custom_generate=loop, max_new_tokens=200)

One forward pass reads the last token and the draft; each place's token is what the model chooses there, and the draft
holds as long as it says the same. So greedy answers are what they would be, and sampled ones are drawn from the model's
own distribution at every place (seeds give other answers than without drafts, of the same distribution). Keys of what
did not hold are cropped away. Not for encoder-decoder models, nor for caches that cannot be cropped.
"""

from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from gpu_runners.speculation.drafter import Drafter


class DraftingLoop:
    """A loop for one answer, as its drafter is. `n_steps` are the forward passes it took."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.n_steps = 0

    @torch.inference_mode()
    def __call__(
        self,
        model: Any,
        input_ids: Any,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **_: Any,
    ) -> torch.Tensor:
        """(1, prompt and answer) ids, as `generate` gives them. Raises ValueError for more than one prompt."""
        if input_ids.shape[0] != 1:
            raise ValueError("Drafts are for one prompt at a time here: generate each by itself, or use our engine.")
        cache = DynamicCache(config=model.config)
        limit = int(generation_config.max_length)
        chooses = _Choosing(logits_processor, stopping_criteria, samples=bool(generation_config.do_sample))
        ids: torch.Tensor = input_ids
        unread, draft = ids, list[int]()
        while True:
            read = torch.cat([unread, unread.new_tensor([draft])], dim=-1)
            out = model(input_ids=read, past_key_values=cache, use_cache=True, logits_to_keep=len(draft) + 1)
            self.n_steps += 1
            n_before = ids.shape[1]
            ids, is_over = chooses.accept(ids, out.logits.float(), draft)
            self._drafter.observe_accepted(ids[0, n_before:].tolist())
            if is_over:
                return ids
            wrong = len(draft) + 1 - (ids.shape[1] - n_before)
            if wrong:
                cache.crop(-wrong)
            unread = ids[:, -1:]
            draft = self._drafter.propose(limit - ids.shape[1] - 1)


class _Choosing:
    def __init__(self, processors: LogitsProcessorList, criteria: StoppingCriteriaList, *, samples: bool) -> None:
        self._processors, self._criteria, self._samples = processors, criteria, samples

    def accept(self, ids: Any, logits: torch.Tensor, draft: list[int]) -> tuple[torch.Tensor, bool]:
        """(`ids` with the tokens that hold and the one that follows, whether the answer is over)."""
        for place in range(len(draft) + 1):
            token = self._choose(self._processors(ids, logits[:, place]))
            ids = torch.cat([ids, token.view(1, 1)], dim=-1)
            is_over = bool(self._criteria(ids, None).all())
            if is_over or place == len(draft) or int(token) != draft[place]:
                break
        return ids, is_over

    def _choose(self, scores: torch.Tensor) -> torch.Tensor:
        if self._samples:
            return torch.multinomial(torch.softmax(scores, dim=-1), 1)[0, 0]
        return scores[0].argmax()
