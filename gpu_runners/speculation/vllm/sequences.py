"""The requests that vLLM holds, as the hook inside it sees them: what each was fed and kept, and its next draft.
Nothing here imports vLLM; what is known of its model runner is in `HookedRows.propose`."""

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
from gpu_runners.speculation.vllm.guard import DraftErrors, guarded
from gpu_runners.speculation.vllm.wire import HookOptions, counts_to_json, draws_by_seed, request_of

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
    counts: tuple[SourceCount, ...] = ()  # of a drafter that is gone

    def silence(self) -> None:
        """No more drafts; the answer goes on."""
        if self.drafter is not None:
            self.counts, self.drafter, self.matcher = self.drafter.counts, None, None

    def told(self) -> dict[str, Any]:
        counts = self.counts if self.drafter is None else self.drafter.counts
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
        self.errors = DraftErrors()

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
        the request holds so far; a row that sampled nothing is still reading its prompt. Raises nothing."""
        if not self.errors.is_off:
            with self.errors.caught("a step's"):
                return self._proposed(runner, fed, sampled, n_tokens, token_ids)
            self.errors.note_step(is_good=False)
            for row in self._rows.values():
                if row is not None:
                    row.silence()
        return [[] for _ in sampled]

    def told(self, request_id: str) -> dict[str, Any]:
        """What the drafts of a request brought (`request_id` is our engine's), and, from time to time, feedback."""
        told, feedback = _NOTHING, []
        with self.errors.caught("what is told of"):
            open_rows = (row for row in self._rows.values() if row is not None and row.request.id == request_id)
            row = next(open_rows, None)
            told = self._ended.pop(request_id, _NOTHING) if row is None else row.told()
        with self.errors.caught("what is learned of"):
            if time.monotonic() - self._told_s > _FEEDBACK_S:
                self._told_s = time.monotonic()
                feedback = [[tenant, one.to_json()] for tenant, one in self._drafts.feedback()]
        return {**told, "feedback": feedback, "errors": self.errors.n_errors}

    def _proposed(
        self,
        runner: Any,
        fed: Mapping[str, Sequence[int]],
        sampled: Sequence[Sequence[int]],
        n_tokens: npt.NDArray[Any],
        token_ids: npt.NDArray[Any],
    ) -> list[list[int]]:
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
        if asked:
            self.errors.note_step(is_good=True)
        self._stepped = (frozenset(ids), time.perf_counter())
        return proposals

    def _row(self, vllm_id: str, state: Any) -> HookedRow | None:
        if vllm_id not in self._rows:
            self._rows[vllm_id] = None
            with self.errors.caught("a new request's"):
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
            if row.drafter is not None:
                row.drafter = guarded(row.drafter, self.errors)
        except Rejected as error:
            log.warning("no drafts for a request: %s", error)
            return None
        return row

    def _request(self, state: Any, prompt: Sequence[int]) -> GenerationRequest | None:
        sampling = state.sampling_params
        if draws_by_seed(sampling.temperature, sampling.seed):
            return None
        most = int(sampling.max_tokens or self._context)
        if self._options.takes_requests:
            return request_of(sampling.extra_args, prompt, most)
        name = "" if state.lora_request is None else state.lora_request.lora_name
        return self._options.request(name, prompt, most)

    def _take(self, row: HookedRow, new: list[int], fed: Sequence[int]) -> bool:
        """`new` became part of the answer. Whether the row may be asked for a draft."""
        row.draft = list(fed)
        row.n_steps += 1
        row.tokens.extend(new)
        with self.errors.caught("one request's"):
            if row.matcher is not None:
                _match(row.matcher, new, self._options.eos_ids)
            if row.drafter is not None:
                self._drafts.settle(row, new)
            return row.drafter is not None
        row.silence()
        return False

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
        with self.errors.caught("an ended request's"):
            self._drafts.close(row)


def _match(matcher: Any, new: Sequence[int], eos_ids: Sequence[int]) -> None:
    for token in new:
        if token in eos_ids or matcher.is_stopped() or not matcher.consume_token(token):
            break
