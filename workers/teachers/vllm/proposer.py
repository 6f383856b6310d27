"""The engine's side of a draft: a proposer for a customer's own vLLM.

    --speculative-config '{"method": "custom_class",
                           "model": "workers.teachers.vllm.proposer.DraftProposer", "num_speculative_tokens": 8}'

A request may bring drafts (`"vllm_xargs": {"kolm_drafts": "[\\"text\\", ...]"}`). While it is answered, whatever
follows in them where the answer runs along one is proposed to the engine, which checks a whole proposal in one forward
pass. It keeps a proposed token x with the probability p(x) that the model gives it and otherwise draws from the rest of
p, so the answers are distributed as without drafts, whatever the drafts say (Leviathan et al., 2211.17192, with all of
the draft's probability on x).

What a request brings serves that request alone and is forgotten with it: nothing is shared between requests, so
nothing between tenants. Garbage proposes nothing.

The file stands alone (the standard library, numpy, and inside the engine vLLM), so that it can be copied into an image.
Held to vLLM 0.32.0 by tests/vllm.
"""

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

XARG = "kolm_drafts"
MAX_CHARS = 65_536  # of a request's drafts as JSON; more is not even parsed
MAX_DRAFTS = 64
MAX_TOKENS = 8_192  # of a request's drafts together: 100 kB of state, 20 us a generated token
LOOK_BACK = 16  # tokens of the prompt's end that count as written: an answer that was begun for the teacher goes on
MIN_MATCH = 2  # agreeing tokens before a proposal; the beginning of an answer counts as one
LENGTH_PER_MATCH = 2  # proposed tokens per agreeing one, so that a weak match wastes little
_BETWEEN = -1  # stands before every draft; no token has this id


def read_drafts(extra_args: Any) -> tuple[str, ...]:
    """The drafts in a request's `vllm_xargs`, best first; () where there are none or they are not a JSON list of text.

    >>> read_drafts({"kolm_drafts": '["Your refund is on its way.", ""]'})
    ('Your refund is on its way.',)
    """
    given = extra_args.get(XARG) if isinstance(extra_args, dict) else None
    if not isinstance(given, str) or len(given) > MAX_CHARS:
        return ()
    try:
        drafts = json.loads(given)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(drafts, list) or not all(isinstance(draft, str) for draft in drafts):
        return ()
    return tuple(draft for draft in drafts[:MAX_DRAFTS] if draft and _is_unicode(draft))


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class DraftMatcher:
    """Follows one answer through its request's drafts.

    For every place in the drafts it holds how many tokens before that place agree with the answer's last tokens; one
    generated token updates all of them at once, O(tokens of the drafts). So after a disagreement the answer is found
    again wherever its last tokens occur."""

    def __init__(self, drafts: Iterable[Sequence[int]], *, eos: int | None = None) -> None:
        tokens: list[int] = []
        for draft in drafts:
            tokens += [_BETWEEN, *draft, *([] if eos is None else [eos])]
            if len(tokens) > MAX_TOKENS:
                break
        self._tokens = np.asarray([*tokens[:MAX_TOKENS], _BETWEEN], dtype=np.int64)
        self._ends = np.append(np.flatnonzero(self._tokens == _BETWEEN), len(self._tokens))
        self._agreeing = np.zeros(len(self._tokens), dtype=np.int32)
        self._at = 0

    def begin(self) -> None:
        """The answer begins here: the beginning of every draft agrees with it, as if one token did."""
        starts = self._ends[:-1][self._ends[:-1] + 1 < len(self._tokens)] + 1
        self._agreeing[starts] = np.maximum(self._agreeing[starts], 1)

    def advance(self, token: int) -> None:
        agreeing = np.zeros_like(self._agreeing)
        agreeing[1:] = np.where(self._tokens[:-1] == token, self._agreeing[:-1] + 1, 0)
        self._agreeing = agreeing

    def propose(self, most: int) -> list[int]:
        """Propose what follows the longest agreement, to the end of its draft, `most` tokens and twice the agreement at
        most. Between equals: the next one after the last proposal's place, else the first."""
        best = int(self._agreeing.max())
        if best < MIN_MATCH:
            return []
        places = np.flatnonzero(self._agreeing == best)
        onward = places[places >= self._at]
        self._at = int(onward[0] if len(onward) else places[0])
        end = int(self._ends[np.searchsorted(self._ends, self._at)])
        length = min(most, LENGTH_PER_MATCH * best, end - self._at)
        return [int(token) for token in self._tokens[self._at : self._at + length]]


class BatchProposer:
    """The matchers of the requests in the engine, each with its own drafts, forgotten when the engine forgets the
    request. `runner` is vLLM's model runner: `input_batch.req_ids` in the batch's order, and `requests` by id."""

    def __init__(self, tokenizer: Any, most: int) -> None:
        self._tokenizer = tokenizer
        self._most = most
        self._matchers: dict[str, DraftMatcher | None] = {}
        self._n_seen: dict[str, int] = {}

    def propose(
        self,
        runner: Any,
        sampled: Sequence[Sequence[int]],
        n_tokens: npt.NDArray[Any],
        token_ids: npt.NDArray[Any],
    ) -> list[list[int]]:
        """Proposed token ids for each row of the batch, [] for none. `token_ids[row, :n_tokens[row]]` is all that the
        request holds so far; a row that sampled nothing is still reading its prompt."""
        for request_id in self._matchers.keys() - runner.requests.keys():
            del self._matchers[request_id], self._n_seen[request_id]
        proposals: list[list[int]] = []
        for row, new in enumerate(sampled):
            request_id = runner.input_batch.req_ids[row]
            held = token_ids[row, : int(n_tokens[row])]
            proposals.append(self._of_request(request_id, runner.requests[request_id], held) if new else [])
        return proposals

    def _of_request(self, request_id: str, request: Any, held: npt.NDArray[Any]) -> list[int]:
        if request_id not in self._matchers:
            self._matchers[request_id] = self._matcher(request, held)
            self._n_seen[request_id] = request.num_prompt_tokens
        matcher = self._matchers[request_id]
        if matcher is None:
            return []
        for token in held[self._n_seen[request_id] :].tolist():
            matcher.advance(token)
        self._n_seen[request_id] = len(held)
        return matcher.propose(self._most)

    def _matcher(self, request: Any, held: npt.NDArray[Any]) -> DraftMatcher | None:
        drafts = read_drafts(getattr(request.sampling_params, "extra_args", None))
        if not drafts or self._tokenizer is None:
            return None
        encoded = (self._tokenizer.encode(draft, add_special_tokens=False) for draft in drafts)
        matcher = DraftMatcher(encoded, eos=self._tokenizer.eos_token_id)
        n_prompt = request.num_prompt_tokens
        for token in held[max(0, n_prompt - LOOK_BACK) : n_prompt].tolist():
            matcher.advance(token)
        matcher.begin()
        return matcher


class DraftProposer:
    """The proposer that vLLM makes of `speculative_config`, one in every worker. Deterministic, so that the ranks of
    one model agree."""

    def __init__(self, vllm_config: Any) -> None:
        from vllm.tokenizers.registry import cached_tokenizer_from_config

        self.runner: Any = None  # set by hand_over_runner's hook before every call
        self._batch = BatchProposer(
            cached_tokenizer_from_config(vllm_config.model_config),
            int(vllm_config.speculative_config.num_speculative_tokens),
        )
        hand_over_runner()
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
        return self._batch.propose(self.runner, sampled_token_ids, num_tokens_no_spec, token_ids_cpu)


def hand_over_runner() -> None:
    """vLLM tells a proposer the batch's tokens but not whose they are; the runner knows, and hands itself over before
    each call. Safe to do twice."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    original = GPUModelRunner.propose_draft_token_ids
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def propose_draft_token_ids(runner: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(runner.drafter, DraftProposer):
            runner.drafter.runner = runner
        return original(runner, *args, **kwargs)

    GPUModelRunner.propose_draft_token_ids = propose_draft_token_ids


def repair_cpu_sampling() -> None:
    """Two faults of vLLM 0.32 that only its CPU platform has, each looked for before it is mended; elsewhere, and where
    a version is free of them, nothing is touched. Spreading each request's temperature, top-k and top-p over its
    proposed places writes into a copy that is dropped (its issue 55005), so that sampled answers are not the model's.
    And a top-k in a step without any proposal raises, which ends the engine."""
    from vllm.platforms import current_platform
    from vllm.v1.sample import rejection_sampler

    if not current_platform.is_cpu():
        return
    if not _spreads(rejection_sampler.expand_batch_to_tokens):
        rejection_sampler.expand_batch_to_tokens = _spread
    if not _takes_nothing(rejection_sampler.apply_top_k_top_p):
        rejection_sampler.apply_top_k_top_p = _on_some_rows(rejection_sampler.apply_top_k_top_p)


def _spread(x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0) -> Any:
    """[a, b] over the running counts [2, 3] is [a, a, b], `replace_from` become `replace_to`."""
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    return x.where(x != replace_from, x.new_tensor(replace_to)).repeat_interleave(counts, output_size=num_tokens)


def _spreads(function: Any) -> bool:
    import torch

    counts = torch.tensor([2, 3], dtype=torch.int32)
    for values in ([0.7, 1.3], [1.3, 0.7]):
        given = torch.tensor(values, dtype=torch.float32)
        if not torch.equal(function(given, counts, 3), _spread(given, counts, 3)):
            return False
    return True


def _takes_nothing(function: Any) -> bool:
    import torch

    try:
        function(torch.zeros(0, 8), torch.zeros(0, dtype=torch.int32), None)
    except RuntimeError:
        return False
    return True


def _on_some_rows(function: Any) -> Any:
    @functools.wraps(function)
    def apply(logits: Any, k: Any, p: Any) -> Any:
        return function(logits, k, p) if logits.shape[0] else logits

    return apply
