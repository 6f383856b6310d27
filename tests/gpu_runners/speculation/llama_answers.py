"""Answers of llama.cpp with and without drafts; runs in .venv-llama, where there is numpy alone.

    python -m tests.gpu_runners.speculation.llama_answers WORK.json

WORK names "model", "prompts", "most", "end", "sampling" and, for drafts, "pack" ("" for none), "pack_sha256",
"token_texts", "tokenizer_sha256", "kinds", "is_gated" and maybe "context". Prints `{"answers", "by_source", "steps",
"seconds"}`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from gpu_runners.models.protocol import Drafting, DraftKind, PackRef
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.llama_cpp import RecipeDrafts
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.vllm.wire import read_token_texts

CONTEXT = 512


def answers(work: dict[str, Any]) -> dict[str, Any]:
    from llama_cpp import Llama

    drafts = drafts_of(work) if work["pack"] else None
    sizes = {"n_ctx": CONTEXT, "n_batch": CONTEXT, "n_threads": 1, "n_threads_batch": 1}
    llama = Llama(work["model"], **sizes, seed=1, verbose=False, logits_all=True, draft_model=drafts)
    n_steps = 0
    evaluate = llama.eval

    def counted(tokens: Any) -> None:
        nonlocal n_steps
        n_steps += 1
        evaluate(tokens)

    llama.eval = counted
    said = []
    began = time.perf_counter()
    for prompt in work["prompts"]:
        answer: list[int] = []
        for token in llama.generate(prompt, temp=0.0, **work["sampling"]):
            answer.append(token)
            if token == work["end"] or len(answer) >= work["most"]:
                break
        said.append(answer)
    seconds = time.perf_counter() - began
    counts = () if drafts is None else drafts.finish()
    by_source = {str(one.kind): [one.drafted, one.accepted] for one in counts}
    return {"answers": said, "by_source": by_source, "steps": n_steps, "seconds": seconds}


def drafts_of(work: dict[str, Any]) -> RecipeDrafts:
    texts = read_token_texts(Path(work["token_texts"]))
    shelf = PackShelf(lambda: texts, tokenizer_sha256=work["tokenizer_sha256"])
    ref = PackRef(key=work["pack_sha256"], path=Path(work["pack"]))
    kinds = tuple(DraftKind(kind) for kind in work["kinds"])
    drafting = Drafting(kinds=kinds, pack=ref, is_gated=work["is_gated"])
    drafts = BatchDrafter(shelf, end_ids=(work["end"],), n_vocab=len(texts))
    return RecipeDrafts(drafts, drafting, context=work.get("context", CONTEXT))


if __name__ == "__main__":
    print(json.dumps(answers(json.loads(Path(sys.argv[1]).read_text()))))
