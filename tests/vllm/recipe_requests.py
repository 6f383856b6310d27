"""What tests and benches on a real vLLM ask: requests, packs that fit and packs that do not, adapters."""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import Recipe, RecipePack
from gpu_runners.models.causal_adapter import AdapterConfig, write_peft_folder
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import (
    AdapterRef,
    Constraint,
    ConstraintKind,
    Drafting,
    DraftKind,
    GenerationRequest,
    PackRef,
)
from gpu_runners.speculation.vocabulary import token_texts
from tests.gpu_runners.serving.small_adapters import adapter_config, attention_shapes, random_adapter

MOST = 48
CHAIN = (DraftKind.PACK, DraftKind.SCHEMA, DraftKind.PROMPT)
SCHEMA = {
    "type": "object",
    "properties": {"delivery_day": {"enum": ["monday", "sunday"]}, "urgent": {"type": "boolean"}},
    "required": ["delivery_day", "urgent"],
    "additionalProperties": False,
}
HELD = Constraint(kind=ConstraintKind.JSON_SCHEMA, value=json.dumps(SCHEMA))
_NUMBERS = count()


def request(prompt: Sequence[int], drafting: Drafting | None = None, **more: object) -> GenerationRequest:
    fields = {"id": f"r{next(_NUMBERS)}", "prompt": tuple(prompt), "max_new_tokens": MOST, "drafting": drafting}
    return GenerationRequest(**{**fields, **more})


def always(ref: PackRef | None, *kinds: DraftKind) -> Drafting:
    return Drafting(kinds=kinds or (DraftKind.PACK,), pack=ref, is_gated=False)


def pack_of(
    base: CausalBase, answers: Sequence[Sequence[int]], prompts: Sequence[Sequence[int]] | None = None
) -> RecipePack:
    """With `prompts`, what each answered, it has copy recipes."""
    asked = prompts or [()] * len(answers)
    return build_pack(
        [
            Observed(tokens=tuple(tokens), agreed=(1,) * len(tokens), n_samples=1, prompt=tuple(prompt))
            for tokens, prompt in zip(answers, asked, strict=True)
        ],
        token_texts(base),
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=PackOptions(),
        end_ids=base.eos_ids,
    )


def written(pack: RecipePack, folder: Path) -> PackRef:
    data = pack.to_bytes()
    key = hashlib.sha256(data).hexdigest()
    path = folder / f"{key}.json"
    path.write_bytes(data)
    return PackRef(key=key, path=path)


def hostile(base: CausalBase, pack: RecipePack, folder: Path) -> PackRef:
    """Proposes something wrong after every token."""
    rng = random.Random(3)
    recipes = [
        Recipe(
            after=(token,),
            shape="",
            run=tuple(rng.randrange(5, base.vocab_size) for _ in range(16)),
            after_text="x",
            run_text="y",
            support=10,
            agreed=10,
        )
        for token in range(base.vocab_size)
    ]
    return written(replace(pack, recipes=tuple(recipes)), folder)


def adapter(base: CausalBase, folder: Path, *, number: int) -> AdapterRef:
    config: AdapterConfig = adapter_config(base, rank=8, alpha=16)
    folder.mkdir()
    made = random_adapter(number, rank=8, shapes=attention_shapes(base), scale=0.3)
    write_peft_folder(folder, made, config)
    return AdapterRef(key=f"{number:064x}", folder=folder, number=number)
