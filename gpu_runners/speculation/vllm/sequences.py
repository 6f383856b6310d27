"""The requests that vLLM holds, as the hook inside it sees them: what each was fed and kept, and its next draft.
Nothing here imports vLLM; what is known of its model runner is in `VllmSequences.propose`."""

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from gpu_runners.models.constraints import Constraints
from gpu_runners.models.protocol import GenerationRequest, Rejected, SourceCount
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.vllm.guard import DraftErrors, guard
from gpu_runners.speculation.vllm.wire import HookOptions, counts_to_json, draws_by_seed, request_of

log = logging.getLogger("kolm.server")
_KEEP_ENDED = 4096  # requests whose counts wait to be asked for
_FEEDBACK_S = 5.0
_NOTHING: dict[str, Any] = {"counts": [], "steps": 0}


@dataclass(slots=True, eq=False)
class VllmSequence:
    """A `DraftedSequence`: one request as vLLM holds it. `draft` is what vLLM fed of the last proposal, `n_steps`
    counts the forward passes that gave tokens."""

    request: GenerationRequest
    tokens: list[int]
    matcher: Any | None
    limit: int
    drafter: Drafter | None = None
    draft: list[int] = field(default_factory=list)
    n_steps: int = 0
    counts: tuple[SourceCount, ...] = ()  # of a drafter that is gone

    def disable_drafts(self) -> None:
        """No more drafts; the answer goes on."""
        if self.drafter is not None:
            self.counts, self.drafter, self.matcher = self.drafter.counts, None, None

    def draft_stats(self) -> dict[str, Any]:
        counts = self.counts if self.drafter is None else self.drafter.counts
        return {"counts": counts_to_json(counts), "steps": self.n_steps}


class VllmSequences:
    """The sequences of one engine by request, forgotten when vLLM forgets the request. `constraints` None: no drafts
    from schemas."""

    def __init__(
        self, drafts: BatchDrafter, options: HookOptions, constraints: Constraints | None, *, context: int
    ) -> None:
        self._drafts, self._options, self._constraints = drafts, options, constraints
        self._context = context
        self._sequences: dict[str, VllmSequence | None] = {}
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._stepped: tuple[frozenset[str], float] = (frozenset(), 0.0)
        self._feedback_at_s = 0.0
        self.errors = DraftErrors()

    def propose(
        self,
        runner: Any,
        fed: Mapping[str, Sequence[int]],
        sampled: Sequence[Sequence[int]],
        n_tokens: npt.NDArray[Any],
        token_ids: npt.NDArray[Any],
    ) -> list[list[int]]:
        """Drafted token ids for each sequence of the batch, [] for none. `runner` is vLLM's model runner:
        `input_batch.req_ids` in the batch's order, and `requests` by id. `token_ids[sequence, :n_tokens[sequence]]` is
        all that the request holds so far; a sequence that sampled nothing is still reading its prompt. Raises
        nothing."""
        if not self.errors.is_off:
            with self.errors.caught("a step's"):
                return self._propose(runner, fed, sampled, n_tokens, token_ids)
            self.errors.note_step(is_good=False)
            for sequence in self._sequences.values():
                if sequence is not None:
                    sequence.disable_drafts()
        return [[] for _ in sampled]

    def draft_stats(self, request_id: str) -> dict[str, Any]:
        """Take what the drafts of a request brought (`request_id` is our engine's), and, from time to time,
        feedback."""
        draft_stats, feedback = _NOTHING, []
        with self.errors.caught("what is told of"):
            open_rows = (
                sequence
                for sequence in self._sequences.values()
                if sequence is not None and sequence.request.id == request_id
            )
            sequence = next(open_rows, None)
            draft_stats = self._ended.pop(request_id, _NOTHING) if sequence is None else sequence.draft_stats()
        with self.errors.caught("what is learned of"):
            if time.monotonic() - self._feedback_at_s > _FEEDBACK_S:
                self._feedback_at_s = time.monotonic()
                feedback = [[tenant, one.to_json()] for tenant, one in self._drafts.feedback()]
        return {**draft_stats, "feedback": feedback, "errors": self.errors.n_errors}

    def _propose(
        self,
        runner: Any,
        fed: Mapping[str, Sequence[int]],
        sampled: Sequence[Sequence[int]],
        n_tokens: npt.NDArray[Any],
        token_ids: npt.NDArray[Any],
    ) -> list[list[int]]:
        ids = runner.input_batch.req_ids[: len(sampled)]
        self._note_step(frozenset(ids), fed, all(sampled))
        for gone in self._sequences.keys() - runner.requests.keys():
            self._close(gone)
        asked: list[tuple[int, VllmSequence]] = []
        for place, new in enumerate(sampled):
            if not new:
                continue
            sequence = self._sequence(ids[place], runner.requests[ids[place]])
            if sequence is None:
                continue
            held = token_ids[place, len(sequence.tokens) : int(n_tokens[place])]
            if self._take(sequence, held.tolist(), fed.get(ids[place], ())):
                asked.append((place, sequence))
        proposals: list[list[int]] = [[] for _ in sampled]
        for (place, _), draft in zip(asked, self._drafts.propose([sequence for _, sequence in asked]), strict=True):
            proposals[place] = draft[: self._options.max_draft]
        if asked:
            self.errors.note_step(is_good=True)
        self._stepped = (frozenset(ids), time.perf_counter())
        return proposals

    def _sequence(self, vllm_id: str, state: Any) -> VllmSequence | None:
        if vllm_id not in self._sequences:
            self._sequences[vllm_id] = None
            with self.errors.caught("a new request's"):
                self._sequences[vllm_id] = self._open(state)
        return self._sequences[vllm_id]

    def _open(self, state: Any) -> VllmSequence | None:
        prompt = list(state.prompt_token_ids)
        request = self._request(state, prompt)
        if request is None:
            return None
        limit = min(len(prompt) + request.max_new_tokens, self._context)
        try:
            matcher = None
            if request.constraint is not None and self._constraints is not None:
                matcher = self._constraints.matcher(request.constraint)
            sequence = VllmSequence(request=request, tokens=prompt, matcher=matcher, limit=limit)
            self._drafts.open(sequence)
            if sequence.drafter is not None:
                sequence.drafter = guard(sequence.drafter, self.errors)
        except Rejected as error:
            log.warning("no drafts for a request: %s", error)
            return None
        return sequence

    def _request(self, state: Any, prompt: Sequence[int]) -> GenerationRequest | None:
        sampling = state.sampling_params
        if draws_by_seed(sampling.temperature, sampling.seed):
            return None
        most = int(sampling.max_tokens or self._context)
        if self._options.takes_requests:
            return request_of(sampling.extra_args, prompt, most)
        name = "" if state.lora_request is None else state.lora_request.lora_name
        return self._options.request(name, prompt, most)

    def _take(self, sequence: VllmSequence, new: list[int], fed: Sequence[int]) -> bool:
        """`new` became part of the answer. Whether the sequence may be asked for a draft."""
        sequence.draft = list(fed)
        sequence.n_steps += 1
        sequence.tokens.extend(new)
        with self.errors.caught("one request's"):
            if sequence.matcher is not None:
                _match(sequence.matcher, new, self._options.eos_ids)
            if sequence.drafter is not None:
                self._drafts.observe_accepted(sequence, new)
            return sequence.drafter is not None
        sequence.disable_drafts()
        return False

    def _note_step(self, ids: frozenset[str], fed: Mapping[str, Sequence[int]], all_sampled: bool) -> None:
        """A step is from one call to the next; one in which a prompt was read, or a sequence came or left, is not
        comparable."""
        before, at_s = self._stepped
        if ids and ids == before and all_sampled:
            self._drafts.note_step(len(ids), sum(map(len, fed.values())), time.perf_counter() - at_s)

    def _close(self, vllm_id: str) -> None:
        sequence = self._sequences.pop(vllm_id)
        if sequence is None:
            return
        self._ended[sequence.request.id] = sequence.draft_stats()
        while len(self._ended) > _KEEP_ENDED:
            self._ended.popitem(last=False)
        with self.errors.caught("an ended request's"):
            self._drafts.close(sequence)


def _match(matcher: Any, new: Sequence[int], eos_ids: Sequence[int]) -> None:
    for token in new:
        if token in eos_ids or matcher.is_stopped() or not matcher.consume_token(token):
            break
