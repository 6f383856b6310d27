"""How far two plain runs of one score lie apart on a real vLLM: what "exact" is exact up to.

    python -m tests.vllm.bench_repeatability [--n 12]        (the engine in .venv-vllm over Gemma 3 270M)

Texts that the engine wrote for the demo's slices are scored alone, alone again, and among others in one batch, at the
same prompt and policy. Per token: the total variation of the two tellings, from the 20 likeliest tokens that vLLM tells
and the mass of the rest; a lower bound of the true one. Over an answer the sum bounds what a rule may be off by.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import yaml

from backend.domain.drafts.token_distributions import total_variation
from backend.domain.spec.parsing import parse_spec
from deploy.embedded.home import ROOT
from tests.vllm.gemma_engine import gemma_teacher, running_gemma
from workers.teachers.openai_compatible.logprobs import Alternatives
from workers.teachers.prompts.candidate_and_label import candidate_request
from workers.teachers.protocol import ScoreRequest
from workers.teachers.vllm.teacher import VllmTeacher

TOP, AT_ONCE, DEADLINE_S = 20, 8, 600.0
Told = Sequence[Alternatives]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=12, help="texts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--origin", help="of an engine that runs already")
    options = parser.parse_args(arguments)
    if options.origin:
        print(table(options.origin, options.n))
        return 0
    with tempfile.TemporaryDirectory() as folder, running_gemma(Path(folder), device=options.device) as engine:
        print(table(engine.origin, options.n))
    return 0


def table(origin: str, n: int) -> str:
    teacher = gemma_teacher(origin)
    requests = scores_of(teacher, n)
    alone, again = (told(teacher, requests, at_once=1) for _ in range(2))
    together = told(teacher, requests, at_once=AT_ONCE)
    teacher.close()
    lines = [
        "| two runs | answers | tokens | mean a token | largest a token | mean an answer (sum) |",
        "| --- | --- | --- | --- | --- | --- |",
        _row("alone, alone again", alone, again),
        _row(f"alone, {min(AT_ONCE, len(requests))} at once", alone, together),
    ]
    return "\n".join(lines)


def scores_of(teacher: VllmTeacher, n: int) -> list[ScoreRequest]:
    """Of texts that the engine itself wrote, under the prompts that it wrote them for."""
    spec = parse_spec(yaml.safe_load((ROOT / "examples" / "refund-router.yaml").read_text()))
    scores: list[ScoreRequest] = []
    for turn in range(n):
        slice_ = spec.slices[turn % len(spec.slices)]
        asked = candidate_request(spec, slice_, n=1, temperature=1.0, seed=turn)
        (choice,) = teacher.complete(asked, deadline_s=DEADLINE_S).choices
        if choice.text:
            scores.append(ScoreRequest(messages=asked.messages, text=choice.text, temperature=1.0, top_logprobs=TOP))
    return scores


def told(teacher: VllmTeacher, requests: Sequence[ScoreRequest], *, at_once: int) -> list[Told]:
    with ThreadPoolExecutor(at_once) as pool:
        done = pool.map(lambda request: teacher.score(request, deadline_s=DEADLINE_S), requests)
        return [completion.choices[0].top_logprobs or () for completion in done]


def _row(name: str, one: Sequence[Told], other: Sequence[Told]) -> str:
    apart = [
        np.array([total_variation(dict(a), dict(b)) for a, b in zip(x, y, strict=True)])
        for x, y in zip(one, other, strict=True)
    ]
    tokens = np.concatenate(apart)
    sums = [float(each.sum()) for each in apart]
    return f"| {name} | {len(apart)} | {len(tokens)} | {tokens.mean():.2g} | {tokens.max():.2g} | {np.mean(sums):.2g} |"


if __name__ == "__main__":
    sys.exit(main())
