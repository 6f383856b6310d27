"""The messages between our vLLM engine and the hook inside vLLM's own process (`vllm_plugin`), as JSON values: with the
engine's start, with each request, and back at a request's end. Nothing here imports vLLM."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runners.models.protocol import (
    Constraint,
    ConstraintKind,
    Drafting,
    DraftKind,
    GenerationRequest,
    PackRef,
    SourceCount,
)

OPTIONS = "kolm"  # in vLLM's `additional_config`
XARG = "kolm_drafting"  # in a request's `extra_args`
KINDS = (DraftKind.PACK, DraftKind.SCHEMA, DraftKind.PROMPT)  # MODEL: vLLM has a method of its own for that


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """`token_texts` is a file of `write_token_texts`. `takes_requests`: requests say themselves which pack is theirs;
    only where nobody but our engine can send any, for they name a file. `packs`, by the name of a LoRA adapter ("" the
    bare base), are for a vLLM server that somebody else runs."""

    token_texts: Path
    tokenizer_sha256: str
    eos_ids: tuple[int, ...]
    takes_requests: bool = False
    packs: Mapping[str, PackRef]
    max_draft: int = 16

    def to_json(self) -> dict[str, Any]:
        return {
            "token_texts": str(self.token_texts),
            "tokenizer_sha256": self.tokenizer_sha256,
            "eos_ids": list(self.eos_ids),
            "takes_requests": self.takes_requests,
            "packs": {name: {"key": ref.key, "path": str(ref.path)} for name, ref in self.packs.items()},
            "max_draft": self.max_draft,
        }

    def request(self, adapter: str, prompt: Sequence[int], max_new_tokens: int) -> GenerationRequest:
        """The request for one that says nothing itself."""
        pack = self.packs.get(adapter)
        kinds = (DraftKind.PROMPT,) if pack is None else (DraftKind.PACK, DraftKind.PROMPT)
        drafting = Drafting(kinds=kinds, pack=pack, max_draft=self.max_draft)
        return GenerationRequest(
            id="", prompt=tuple(prompt), max_new_tokens=max_new_tokens, tenant=adapter, drafting=drafting
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "HookOptions":
        """Raises KeyError, TypeError: what an operator wrote is read when the engine starts."""
        packs = {str(name): _pack_ref(ref) for name, ref in value.get("packs", {}).items()}
        return cls(
            token_texts=Path(value["token_texts"]),
            tokenizer_sha256=str(value["tokenizer_sha256"]),
            eos_ids=tuple(int(i) for i in value["eos_ids"]),
            takes_requests=bool(value.get("takes_requests", False)),
            packs=packs,
            max_draft=int(value.get("max_draft", 16)),
        )


def write_token_texts(texts: Sequence[bytes], path: Path) -> None:
    """A JSON list, a byte a character (Latin-1)."""
    path.write_text(json.dumps([text.decode("latin-1") for text in texts]), "utf-8")


def read_token_texts(path: Path) -> list[bytes]:
    return [str(text).encode("latin-1") for text in json.loads(path.read_text("utf-8"))]


def draws_by_seed(temperature: float, seed: int | None) -> bool:
    """Say whether the answer hangs on the numbers that the request's own seed gives. vLLM draws others for drafted
    places than for plain ones, so such a request is not drafted for, and its answer is the one without."""
    return temperature > 0 and seed is not None


def drafting_args(request: GenerationRequest) -> dict[str, Any] | None:
    """`extra_args` of a request that is drafted for."""
    drafting = request.drafting
    if drafting is None or draws_by_seed(request.temperature, request.seed) or not set(drafting.kinds) & set(KINDS):
        return None
    wants_schema = DraftKind.SCHEMA in drafting.kinds and request.constraint is not None
    arguments: dict[str, Any] = {
        "id": request.id,
        "tenant": request.tenant,
        "kinds": [str(kind) for kind in drafting.kinds if kind in KINDS],
        "max_draft": drafting.max_draft,
        "is_gated": drafting.is_gated,
        "learns": drafting.learns,
    }
    if drafting.pack is not None:
        arguments["pack"] = {"key": drafting.pack.key, "path": str(drafting.pack.path)}
    if wants_schema and request.constraint is not None:
        arguments["constraint"] = [str(request.constraint.kind), request.constraint.value]
    return {XARG: arguments}


def request_of(extra_args: Any, prompt: Sequence[int], max_new_tokens: int) -> GenerationRequest | None:
    """The request that `drafting_args` was given, read inside the engine; None for requests without."""
    arguments = extra_args.get(XARG) if isinstance(extra_args, dict) else None
    if arguments is None:
        return None
    kind, value = arguments.get("constraint", (None, ""))
    return GenerationRequest(
        id=arguments["id"],
        prompt=tuple(prompt),
        max_new_tokens=max_new_tokens,
        tenant=arguments["tenant"],
        constraint=None if kind is None else Constraint(kind=ConstraintKind(kind), value=value),
        drafting=Drafting(
            kinds=tuple(DraftKind(one) for one in arguments["kinds"]),
            pack=_pack_ref(arguments["pack"]) if "pack" in arguments else None,
            max_draft=arguments["max_draft"],
            is_gated=arguments["is_gated"],
            learns=arguments["learns"],
        ),
    )


def counts_to_json(counts: Sequence[SourceCount]) -> list[list[Any]]:
    return [[str(one.kind), one.drafted, one.accepted] for one in counts]


def counts_from_json(value: Sequence[Sequence[Any]]) -> tuple[SourceCount, ...]:
    return tuple(
        SourceCount(kind=DraftKind(kind), drafted=int(drafted), accepted=int(accepted))
        for kind, drafted, accepted in value
    )


def _pack_ref(value: Mapping[str, Any]) -> PackRef:
    return PackRef(key=str(value["key"]), path=Path(value["path"]))
