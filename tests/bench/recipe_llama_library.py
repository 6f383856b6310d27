"""What of `tests.bench.recipe_llama` runs in .venv-llama: llama-cpp-python with each way to draft.

    python -m tests.bench.recipe_llama_library WORK.json

WORK is that of `tests.gpu_runners.speculation.llama_answers` with "rounds", "context" and "ways" (name: what differs).
One process, one model, ways in turn and another first each round. Prints by way `{"answers", "steps", "drafted",
"accepted", "cpu_s"}`, the last a list over rounds.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from gpu_runners.speculation.llama_cpp import RecipeDrafts
from tests.gpu_runners.speculation.llama_answers import drafts_of


def measured(work: dict[str, Any]) -> dict[str, dict[str, Any]]:
    from llama_cpp import Llama

    sizes = {"n_ctx": work["context"], "n_batch": work["context"], "n_threads": 1, "n_threads_batch": 1}
    llama = Llama(work["model"], **sizes, seed=1, verbose=False, logits_all=True)
    told: dict[str, dict[str, Any]] = {way: {"cpu_s": []} for way in work["ways"]}
    names = list(told)
    for number in range(work["rounds"]):
        first = number % len(names)
        for way in names[first:] + names[:first]:
            its = work | work["ways"][way]
            began = time.process_time()
            found = _pass(llama, its, drafts_of(its) if its["pack"] else None)
            told[way]["cpu_s"].append(time.process_time() - began)
            told[way] |= found
    return told


def _pass(llama: Any, work: dict[str, Any], drafts: RecipeDrafts | None) -> dict[str, Any]:
    llama.draft_model = drafts
    steps, evaluate = [0], type(llama).eval

    def counted(tokens: Any) -> None:
        steps[0] += 1
        evaluate(llama, tokens)

    llama.eval = counted
    answers = [_answer(llama, prompt, work) for prompt in work["prompts"]]
    counts = () if drafts is None else drafts.finish()
    drafted, accepted = sum(one.drafted for one in counts), sum(one.accepted for one in counts)
    return {"answers": answers, "steps": steps[0], "drafted": drafted, "accepted": accepted}


def _answer(llama: Any, prompt: list[int], work: dict[str, Any]) -> list[int]:
    answer: list[int] = []
    for token in llama.generate(prompt, temp=0.0):
        answer.append(token)
        if token == work["end"] or len(answer) >= work["most"]:
            break
    return answer


if __name__ == "__main__":
    print(json.dumps(measured(json.loads(Path(sys.argv[1]).read_text()))))
