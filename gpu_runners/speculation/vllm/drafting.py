"""The drafting for the requests of `VllmEngine`: what vLLM is started with, what goes with each request, and what the
drafts brought. The other end is in vLLM's own process: `gpu_runners.speculation.vllm.plugin`."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.domain.recipes.feedback import PackFeedback
from backend.domain.recipes.pack import MAX_PACK_BYTES, InvalidPack, read_pack
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import Counts, DraftKind, GenerationRequest, PackRef, Rejected
from gpu_runners.speculation.vllm.guard import DraftErrors
from gpu_runners.speculation.vllm.wire import OPTIONS, HookOptions, counts_from_json, drafting_args, write_token_texts
from gpu_runners.speculation.vocabulary import token_texts

_KEEP_CHECKED = 4096


def hook_arguments(base: CausalBase, folder: Path, *, max_draft: int) -> dict[str, Any]:
    """The arguments of AsyncEngineArgs. Writes what the hook needs to know of the base's tokens into `folder`, so that
    it opens no base itself."""
    path = folder / "token_texts.json"
    write_token_texts(token_texts(base), path)
    options = HookOptions(
        token_texts=path,
        tokenizer_sha256=base.tokenizer_sha256,
        eos_ids=base.eos_ids,
        takes_requests=True,
        packs={},
        max_draft=max_draft,
    )
    return {
        "additional_config": {OPTIONS: options.to_json()},
        "worker_extension_cls": "gpu_runners.speculation.vllm.plugin.DraftStatsExtension",
    }


class EngineDrafts:
    """The drafts of one running engine."""

    def __init__(self, llm: Any, base: CausalBase) -> None:
        self._llm, self._base = llm, base
        self.n_errors = 0  # of drafts in vLLM's process, as far as reported
        self._errors = DraftErrors()
        self._checked: OrderedDict[str, None] = OrderedDict()
        self._feedback: list[tuple[str, PackFeedback]] = []

    async def extra_args(self, request: GenerationRequest) -> dict[str, Any] | None:
        """Make the extra arguments of vLLM's SamplingParams. Raises Rejected(bad_pack)."""
        drafting = request.drafting
        if drafting is not None and drafting.pack is not None and DraftKind.PACK in drafting.kinds:
            await self._check(drafting.pack)
        return drafting_args(request)

    async def complete_counts(self, request_id: str, counts: Counts) -> Counts:
        """`counts` of a request that has ended with what the hook knows: one call into vLLM's process, between two of
        its steps. vLLM itself says nothing of drafts where a stop text ended the answer. Where the call fails, the
        answer ends with vLLM's own counts."""
        with self._errors.caught("what is told of"):
            draft_stats: Mapping[str, Any] = (await self._llm.collective_rpc("kolm_drafts_of", args=(request_id,)))[0]
            return self._with_draft_stats(counts, draft_stats)
        return counts

    def _with_draft_stats(self, counts: Counts, draft_stats: Mapping[str, Any]) -> Counts:
        self.n_errors = int(draft_stats["errors"])
        rows: Sequence[tuple[str, dict[str, Any]]] = draft_stats["feedback"]
        self._feedback += [(tenant, PackFeedback.from_json(one)) for tenant, one in rows]
        by_source = counts_from_json(draft_stats["counts"])
        drafted, accepted = counts.drafted_tokens, counts.accepted_tokens
        if not drafted:
            drafted = sum(one.drafted for one in by_source)
            accepted = min(sum(one.accepted for one in by_source), counts.completion_tokens)
        return replace(
            counts,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            steps=int(draft_stats["steps"]),
            by_source=by_source,
        )

    def pack_feedback(self) -> list[tuple[str, PackFeedback]]:
        """Take the feedback since the last call, by tenant."""
        drained, self._feedback = self._feedback, []
        return drained

    async def _check(self, pack: PackRef) -> None:
        if pack.key in self._checked:
            return
        await asyncio.to_thread(check_pack, pack, self._base.tokenizer_sha256)
        self._checked[pack.key] = None
        if len(self._checked) > _KEEP_CHECKED:
            self._checked.popitem(last=False)


def check_pack(pack: PackRef, tokenizer_sha256: str) -> None:
    """Raises Rejected(bad_pack): not the bytes that were verified, or made for other tokens."""
    try:
        with pack.path.open("rb") as file:
            data = file.read(MAX_PACK_BYTES + 1)
        if hashlib.sha256(data).hexdigest() != pack.key:
            raise Rejected(
                "The recipe pack was altered after it was verified; fetch the artifact again.", code="bad_pack"
            )
        read_pack(data, tokenizer_sha256=tokenizer_sha256)
    except OSError as error:
        raise Rejected(f"The recipe pack cannot be read: {error.strerror}.", code="bad_pack") from error
    except InvalidPack as error:
        raise Rejected(str(error), code="bad_pack") from error
