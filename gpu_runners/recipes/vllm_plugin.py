"""Drafts inside vLLM: the proposer that `plan` names as its `custom_class`, one in every worker.

    speculative_config = {"method": "custom_class", "model": "gpu_runners.recipes.vllm_plugin.RecipeProposer",
                          "num_speculative_tokens": 16}
    additional_config = {"kolm": HookOptions(...).to_json()}

Each request has its own drafter over its own artifact's pack, what its constraint forces and its prompt; nothing of one
request is drafted for another. vLLM verifies: it keeps a drafted token where its model says the same (greedy) or with
the probability that its model gives it, else draws from the rest. A pack that does not fit proposes nothing.

A schema's tokens come from a matcher of ours beside vLLM's own, which is in its scheduler and out of reach here.
vLLM's classes are only touched in `vllm_repairs`. Held to vLLM 0.32.0 by tests/vllm.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from gpu_runners.generation.constraints import Constraints
from gpu_runners.generation.protocol import GenerationRequest, Rejected
from gpu_runners.recipes.batch import BatchDrafter
from gpu_runners.recipes.drafter import Drafter
from gpu_runners.recipes.packs import PackShelf
from gpu_runners.recipes.vllm_repairs import hand_over, repair_cpu_sampling
from gpu_runners.recipes.vllm_wire import OPTIONS, HookOptions, counts_to_json, read_token_texts, request_of

log = logging.getLogger("kolm.server")
_KEEP_ENDED = 4096  # requests whose counts wait to be asked for
_FEEDBACK_S = 5.0
_NOTHING: dict[str, Any] = {"counts": [], "steps": 0}


@dataclass(slots=True, eq=False)
class HookedRow:
    """A `DraftRow`: one request as vLLM holds it. `draft` is what vLLM fed of the last proposal, `n_steps` counts the
    forward passes that gave tokens."""

    request: GenerationRequest
    tokens: list[int]
    matcher: Any | None
    limit: int
    drafter: Drafter | None = None
    draft: list[int] = field(default_factory=list)
    n_steps: int = 0

    def told(self) -> dict[str, Any]:
        counts = () if self.drafter is None else self.drafter.counts
        return {"counts": counts_to_json(counts), "steps": self.n_steps}


class HookedRows:
    """The rows of one engine by request, forgotten when vLLM forgets the request. `constraints` None: no drafts from
    schemas."""

    def __init__(
        self, drafts: BatchDrafter, options: HookOptions, constraints: Constraints | None, *, context: int
    ) -> None:
        self._drafts, self._options, self._constraints = drafts, options, constraints
        self._context = context
        self._rows: dict[str, HookedRow | None] = {}
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._stepped: tuple[frozenset[str], float] = (frozenset(), 0.0)
        self._told_s = 0.0

    def propose(
        self,
        runner: Any,
        fed: Mapping[str, Sequence[int]],
        sampled: Sequence[Sequence[int]],
        n_tokens: npt.NDArray[Any],
        token_ids: npt.NDArray[Any],
    ) -> list[list[int]]:
        """Drafted token ids for each row of the batch, [] for none. `runner` is vLLM's model runner:
        `input_batch.req_ids` in the batch's order, and `requests` by id. `token_ids[row, :n_tokens[row]]` is all that
        the request holds so far; a row that sampled nothing is still reading its prompt."""
        ids = runner.input_batch.req_ids[: len(sampled)]
        self._note_step(frozenset(ids), fed, all(sampled))
        for gone in self._rows.keys() - runner.requests.keys():
            self._close(gone)
        asked: list[tuple[int, HookedRow]] = []
        for place, new in enumerate(sampled):
            if not new:
                continue
            row = self._row(ids[place], runner.requests[ids[place]])
            if row is None:
                continue
            held = token_ids[place, len(row.tokens) : int(n_tokens[place])]
            if self._take(row, held.tolist(), fed.get(ids[place], ())):
                asked.append((place, row))
        proposals: list[list[int]] = [[] for _ in sampled]
        for (place, _), draft in zip(asked, self._drafts.propose([row for _, row in asked]), strict=True):
            proposals[place] = draft[: self._options.max_draft]
        self._stepped = (frozenset(ids), time.perf_counter())
        return proposals

    def told(self, request_id: str) -> dict[str, Any]:
        """What the drafts of a request brought (`request_id` is our engine's), and, from time to time, feedback."""
        open_rows = (row for row in self._rows.values() if row is not None and row.request.id == request_id)
        row = next(open_rows, None)
        told = self._ended.pop(request_id, _NOTHING) if row is None else row.told()
        feedback: list[list[Any]] = []
        if time.monotonic() - self._told_s > _FEEDBACK_S:
            self._told_s = time.monotonic()
            feedback = [[tenant, one.to_json()] for tenant, one in self._drafts.feedback()]
        return {**told, "feedback": feedback}

    def _row(self, vllm_id: str, state: Any) -> HookedRow | None:
        if vllm_id not in self._rows:
            self._rows[vllm_id] = self._open(state)
        return self._rows[vllm_id]

    def _open(self, state: Any) -> HookedRow | None:
        prompt = list(state.prompt_token_ids)
        request = self._request(state, prompt)
        if request is None:
            return None
        limit = min(len(prompt) + request.max_new_tokens, self._context)
        try:
            matcher = None
            if request.constraint is not None and self._constraints is not None:
                matcher = self._constraints.matcher(request.constraint)
            row = HookedRow(request=request, tokens=prompt, matcher=matcher, limit=limit)
            self._drafts.open(row)
        except Rejected as error:
            log.warning("no drafts for a request: %s", error)
            return None
        return row

    def _request(self, state: Any, prompt: Sequence[int]) -> GenerationRequest | None:
        most = int(state.sampling_params.max_tokens or self._context)
        if self._options.takes_requests:
            return request_of(state.sampling_params.extra_args, prompt, most)
        name = "" if state.lora_request is None else state.lora_request.lora_name
        return self._options.request(name, prompt, most)

    def _take(self, row: HookedRow, new: list[int], fed: Sequence[int]) -> bool:
        """`new` became part of the answer. Whether the row may be asked for a draft."""
        row.draft = list(fed)
        row.n_steps += 1
        row.tokens.extend(new)
        if row.matcher is not None:
            for token in new:
                if token in self._options.eos_ids or row.matcher.is_stopped() or not row.matcher.consume_token(token):
                    break
        if row.drafter is None:
            return False
        self._drafts.settle(row, new)
        return True

    def _note_step(self, ids: frozenset[str], fed: Mapping[str, Sequence[int]], all_sampled: bool) -> None:
        """A step is from one call to the next; one in which a prompt was read, or a row came or left, is not
        comparable."""
        before, at_s = self._stepped
        if ids and ids == before and all_sampled:
            self._drafts.note_step(len(ids), sum(map(len, fed.values())), time.perf_counter() - at_s)

    def _close(self, vllm_id: str) -> None:
        row = self._rows.pop(vllm_id)
        if row is None:
            return
        self._ended[row.request.id] = row.told()
        while len(self._ended) > _KEEP_ENDED:
            self._ended.popitem(last=False)
        self._drafts.close(row)


class RecipeProposer:
    """What vLLM makes of `speculative_config`. `runner` and `fed` are set before every call (`vllm_repairs`)."""

    def __init__(self, vllm_config: Any) -> None:
        self.runner: Any = None
        self.fed: Mapping[str, Sequence[int]] = {}
        options = HookOptions.from_json(vllm_config.additional_config[OPTIONS])
        shelf = PackShelf(lambda: read_token_texts(options.token_texts), tokenizer_sha256=options.tokenizer_sha256)
        model = vllm_config.model_config
        n_vocab, context = int(model.get_vocab_size()), int(model.max_model_len)
        drafts = BatchDrafter(shelf, end_ids=options.eos_ids, n_vocab=n_vocab)
        self._rows = HookedRows(drafts, options, _constraints(model, options), context=context)
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
        return self._rows.propose(self.runner, self.fed, sampled_token_ids, num_tokens_no_spec, token_ids_cpu)

    def told(self, request_id: str) -> dict[str, Any]:
        return self._rows.told(request_id)


class DraftTeller:
    """What vLLM adds to its worker (`worker_extension_cls`): how our engine reaches the proposer of another process."""

    model_runner: Any

    def kolm_drafts_of(self, request_id: str) -> dict[str, Any]:
        told: dict[str, Any] = self.model_runner.drafter.told(request_id)
        return told


def _constraints(model: Any, options: HookOptions) -> Constraints | None:
    from vllm.tokenizers.registry import cached_tokenizer_from_config

    tokenizer = cached_tokenizer_from_config(model)
    if not hasattr(tokenizer, "backend_tokenizer"):
        return None
    return Constraints(tokenizer, vocab_size=int(model.get_vocab_size()), eos_ids=options.eos_ids)
