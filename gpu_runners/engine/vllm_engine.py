"""vLLM 0.32's AsyncLLM as an `Engine`. The one file that imports vLLM, beside the hook that runs inside it.

Adapters go with each request (`LoRARequest`, with the store's stable number): vLLM's own resolver, which follows any
path in a model's name, and its endpoint that loads adapters are never switched on. Two traps are walked around: on a
CPU one adapter slot more than a batch may use stays empty (`plan`), and the tokenizer is given as a folder of its own,
without a config beside it, after which transformers would rebuild it. DoRA and merged adapters are not there.
"""

import asyncio
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.domain.patterns.decoding import decodable_schema
from backend.domain.recipes.feedback import PackFeedback
from gpu_runners.engine.planning.plan import EnginePlan, Speculation
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.lora_shapes import check_shapes
from gpu_runners.models.protocol import (
    AdapterRef,
    Constraint,
    ConstraintKind,
    Counts,
    Delta,
    EngineFailed,
    FinishReason,
    GenerationRequest,
    Rejected,
    TokenLogprob,
)
from gpu_runners.speculation.vllm.drafting import EngineDrafts, hook_arguments

log = logging.getLogger("kolm.server")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
# what `json.dumps` writes, as our own engine has it
_WHITE_SPACE = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_MAX_TOP_LOGPROBS = 20


class VllmEngine:
    """Made by `start`. Used from the event loop it was started in."""

    def __init__(self, llm: Any, base: CausalBase, planned: EnginePlan) -> None:
        self._llm, self._base, self._plan = llm, base, planned
        self._received: Counter[str] = Counter()
        self._running: dict[str, str] = {}  # request -> key of its adapter
        self._numbers: dict[str, int] = {}
        self._checked: set[int] = set()
        self._drafts = EngineDrafts(llm, base) if planned.speculation is Speculation.RECIPES else None

    @classmethod
    async def start(cls, base: CausalBase, planned: EnginePlan, *, folder: Path) -> "VllmEngine":
        """`folder` is where a tokenizer may be put. Raises JobFailed(engine_failed)."""
        os.environ.update(planned.vllm_environment())  # read when vLLM is imported, and by its child process
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        tokenizer = tokenizer_folder(base, folder)
        more = {}
        if planned.speculation is Speculation.RECIPES:
            more = hook_arguments(base, tokenizer, max_draft=planned.draft_tokens)
        arguments = AsyncEngineArgs(
            model=str(base.folder),
            tokenizer=str(tokenizer),
            structured_outputs_config={"backend": "guidance", "disable_any_whitespace": True},
            max_logprobs=_MAX_TOP_LOGPROBS,
            enable_log_requests=False,
            disable_log_stats=True,
            per_request_spec_decode_metrics="none" if planned.speculation is Speculation.NONE else "summary",
            **planned.vllm_arguments(),
            **more,
        )
        try:
            # takes up to minutes: in a thread, so that hellos go on; its tasks then start in this loop at first use
            llm = await asyncio.to_thread(AsyncLLM.from_engine_args, arguments)
        except (RuntimeError, ValueError, OSError) as error:
            raise JobFailed(f"vLLM does not start: {error}", code="engine_failed") from error
        return cls(llm, base, planned)

    @property
    def about(self) -> Mapping[str, Any]:
        import vllm

        return {"name": "vllm", "version": str(vllm.__version__)} | self._plan.about()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        self._check(request)
        sampling = self._sampling(request)
        if self._drafts is not None:
            sampling.extra_args = await self._drafts.extra_args(request)
        prompt: dict[str, Any] = {"prompt_token_ids": list(request.prompt)}
        if request.cache_salt:
            prompt["cache_salt"] = request.cache_salt
        if request.adapter is not None:
            self._running[request.id] = request.adapter.key
            self._numbers[request.adapter.key] = request.adapter.number
        counts = Counts()
        self._received["requests"] += 1
        try:
            outputs = self._llm.generate(prompt, sampling, request.id, lora_request=_lora_request(request.adapter))
            async with aclosing(outputs):
                async for output in outputs:
                    delta = self._delta(output, request, counts)
                    if delta.finish_reason is not None and self._drafts is not None and sampling.extra_args:
                        delta = replace(delta, counts=await self._drafts.complete_counts(request.id, delta.counts))
                    self._receive(counts, delta.counts)
                    counts = delta.counts
                    yield delta
        except (asyncio.CancelledError, GeneratorExit):
            self._received["canceled"] += 1
            raise
        except (VLLMClientError, ValueError, TypeError) as error:
            raise Rejected(f"vLLM does not take this request: {error}", code="unsupported") from error
        except EngineDeadError as error:
            raise EngineFailed("The engine has stopped.", code="engine_stopped") from error
        except EngineGenerateError as error:
            raise EngineFailed("The engine failed on this request.", code="engine_failed") from error
        finally:
            self._running.pop(request.id, None)

    def counters(self) -> Mapping[str, int]:
        """Tokens count when their reader gets them."""
        names = ("prompt_tokens", "cached_tokens", "completion_tokens", "drafted_tokens", "accepted_tokens")
        kept = {name: self._received[name] for name in (*names, "requests", "canceled")}
        kept |= {"running": self._llm.get_num_unfinished_requests(), "waiting": 0, "adapter_loads": 0}
        return kept if self._drafts is None else kept | {"draft_errors": self._drafts.n_errors}

    def pack_feedback(self) -> list[tuple[str, PackFeedback]]:
        """Take the feedback of packs since the last call, by tenant."""
        return [] if self._drafts is None else self._drafts.pack_feedback()

    async def forget(self, key: str) -> None:
        ids = [request for request, adapter in self._running.items() if adapter == key]
        if ids:
            await self._llm.abort(ids)
        number = self._numbers.pop(key, None)
        if number is not None:
            with suppress(RuntimeError, ValueError):  # not loaded at the moment
                await self._llm.remove_lora(number)

    async def close(self) -> None:
        await asyncio.to_thread(self._llm.shutdown)

    def _check(self, request: GenerationRequest) -> None:
        """Raises Rejected before anything is computed."""
        if len(request.prompt) + 1 > self._plan.max_model_len:
            raise Rejected(
                f"The prompt has {len(request.prompt)} tokens; with its answer at most {self._plan.max_model_len} fit.",
                code="context_too_long",
            )
        if self._plan.greedy_only and request.temperature > 0:
            raise Rejected("This server answers greedily alone: leave the temperature at 0.", code="unsupported")
        if request.adapter is not None and request.adapter.number not in self._checked:
            self._check_adapter(request.adapter)
            self._checked.add(request.adapter.number)

    def _check_adapter(self, adapter: AdapterRef) -> None:
        config = json.loads((adapter.folder / "adapter_config.json").read_text("utf-8"))
        if config["use_dora"]:
            raise Rejected("vLLM runs no DoRA adapters; use the transformers engine.", code="bad_adapter")
        if config["r"] > self._plan.max_rank:
            raise Rejected(
                f"The adapter is of rank {config['r']}, this server's highest is {self._plan.max_rank} "
                "(KOLM_SERVER_MAX_RANK).",
                code="bad_adapter",
            )
        check_shapes(adapter.folder, self._base.folder, rank=config["r"])

    def _sampling(self, request: GenerationRequest) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        room = self._plan.max_model_len - len(request.prompt)
        return SamplingParams(
            max_tokens=min(request.max_new_tokens, room),
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=request.seed,
            stop=list(request.stop) or None,
            stop_token_ids=list(self._base.eos_ids),
            logprobs=None if request.top_logprobs is None else min(request.top_logprobs, _MAX_TOP_LOGPROBS),
            frequency_penalty=request.frequency_penalty,
            presence_penalty=request.presence_penalty,
            structured_outputs=None if request.constraint is None else _structured_outputs(request.constraint),
            output_kind=RequestOutputKind.DELTA,
        )

    def _delta(self, output: Any, request: GenerationRequest, before: Counts) -> Delta:
        (answer,) = output.outputs
        if answer.finish_reason in ("abort", "error"):
            raise EngineFailed("The engine ended this request.", code="engine_failed")
        ids = tuple(int(i) for i in answer.token_ids)
        drafted, accepted = _spec_counts(answer.spec_decode_metrics)
        counts = Counts(
            prompt_tokens=len(request.prompt),
            cached_tokens=int(output.num_cached_tokens or 0),
            completion_tokens=before.completion_tokens + len(ids),
            drafted_tokens=drafted,
            accepted_tokens=accepted,
        )
        return Delta(
            text=answer.text,
            token_ids=ids,
            logprobs=tuple(_logprobs(ids, answer.logprobs, request.top_logprobs)),
            logprob=float(answer.cumulative_logprob or 0.0),
            finish_reason=None if answer.finish_reason is None else FinishReason(answer.finish_reason),
            counts=counts,
        )

    def _receive(self, before: Counts, now: Counts) -> None:
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "drafted_tokens", "accepted_tokens"):
            self._received[name] += getattr(now, name) - getattr(before, name)


def tokenizer_folder(base: CausalBase, root: Path) -> Path:
    """The tokenizer's files without the config."""
    folder = root / base.tokenizer_sha256
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER_FILES:
        if (base.folder / name).is_file():
            shutil.copyfile(base.folder / name, folder / name)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizerFast"}), "utf-8")
    return folder


def _lora_request(adapter: AdapterRef | None) -> Any:
    """Named by the artifact's sha256: vLLM's prefix cache is kept apart by that name."""
    if adapter is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name=adapter.key, lora_int_id=adapter.number, lora_path=str(adapter.folder))


def _structured_outputs(constraint: Constraint) -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    try:
        if constraint.kind is ConstraintKind.CHOICES:
            return StructuredOutputsParams(choice=json.loads(constraint.value))
        schema = {"type": "object"} if constraint.kind is ConstraintKind.JSON_OBJECT else json.loads(constraint.value)
        schema = decodable_schema(schema)
        return StructuredOutputsParams(json={**schema, "x-guidance": _WHITE_SPACE}, disable_any_whitespace=True)
    except (ValueError, TypeError, RecursionError) as error:
        raise Rejected("The constraint on the answer is not JSON.", code="bad_constraint") from error


def _spec_counts(metrics: Any) -> tuple[int, int]:
    """(drafted, accepted), known when a request ends."""
    if metrics is None:
        return 0, 0
    return int(metrics.num_draft_tokens), sum(n * int(times) for n, times in enumerate(metrics.histogram))


def _logprobs(ids: tuple[int, ...], logprobs: Any, n_top: int | None) -> list[TokenLogprob]:
    if n_top is None or logprobs is None:
        return []
    rows = []
    for token, row in zip(ids, logprobs, strict=True):
        likeliest = sorted(row.values(), key=lambda one: -one.logprob)[:n_top]
        top = tuple((str(one.decoded_token), float(one.logprob)) for one in likeliest)
        chosen = row[token]
        rows.append(TokenLogprob(token=str(chosen.decoded_token), logprob=float(chosen.logprob), top=top))
    return rows
