"""`python -m tests.bench.causal_distillation`: what a causal student learns from, compared: one answer an input, all
its different answers, the teacher's distributions of their tokens, and of the tokens of its own answers (on-policy).
Prints the table of docs/benchmarks/causal-samples.md.

The teacher is a language model with samples and log-probs: an adapter of the base, trained on the grammar's answers to
`--n-teacher` mails of a task of `recipe_world`. It answers `--n-inputs` other mails as a compile asks it to
(three samples at the spec's temperature, the 20 likeliest tokens at each place), through the shapes and readers of the
wire and the product's own votes, pairs and trainer. Each arm trains the bare base on those answers, with each seed (of
the training; the samples are drawn anew too); one answer three times as often as all, so that no
arm of all answers reads more tokens. An on-policy arm trains half of its passes on one answer and the other half on the
student's own answers, drawn in between, of which the teacher tells the 20 likeliest tokens at each place. Held out are
mails that neither saw, with the grammar's answers.

Shown of each arm: nats a token of those answers, and the share of greedy answers that equal them; for both the
difference to the first arm with a 95 % interval, by a bootstrap over the held-out mails of their means over the seeds.
"""

import argparse
import asyncio
import dataclasses
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend.domain.spec.parsing import Spec
from deploy.embedded.home import ROOT
from gpu_runners.distill.causal.dataset import encode, read_rows
from gpu_runners.engine.sync import AT_ONCE, generate_all
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import AdapterRef, GenerationRequest
from gpu_runners.serving.openai.shapes import _chat_logprob
from tests.bench.banking77_data import data_folder
from tests.bench.causal_distillation_arms import ARMS, N_SAMPLES, N_TOP, Taught, net_of, train_arm
from tests.bench.recipe_world import _OPTIONS, KEPT, World, _said, taught, world
from tests.bench.snips_data import jsonl
from workers.teachers.openai_compatible.answers import read_chat
from workers.teachers.prompts.answer import item_request
from workers.teachers.protocol import CompletionRequest
from workers.training.sample_pairs import LEAST_PROBABILITY
from workers.training.votes import agree, valid_samples

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Of each held-out mail: nats a token of its answer, and whether the greedy answer equals it."""

    nats: list[float]
    exact: list[bool]


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    base = open_causal_base(chosen.base, base_dir=ROOT / "build" / "bases")
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{datetime.date.today()}, load {load}, {vars(chosen)}", flush=True)
    options = dataclasses.replace(
        _OPTIONS[chosen.task],
        rank=32,
        alpha=64,
        epochs=chosen.teacher_epochs,
        learning_rate=chosen.teacher_rate,
        tokens_per_step=chosen.tokens_per_step,
    )
    kept = {"options": options, "n_train": chosen.n_teacher, "kept": chosen.kept, "base": base}
    teacher = world(chosen.task, chosen.data, **kept)
    spec, rows, held = taught(chosen.task, chosen.data)
    inputs = [row.input for row in rows[chosen.n_teacher :]][: chosen.n_inputs]
    gold = _gold(spec, held[: chosen.n_held])
    measured: dict[str, list[Held]] = {}
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as folder:
        own = teacher.ref(Path(folder) / "teacher")
        measured["the teacher"] = [_measure(teacher, own, gold, base)] * len(chosen.seeds)
        for seed in chosen.seeds:
            lesson = _ask(teacher, own, spec, inputs, seed)
            _describe(lesson)
            for name in chosen.arms or ARMS:
                began = time.process_time()
                student = train_arm(teacher, own, lesson, ARMS[name], seed, chosen, Path(folder) / f"{seed} {name}")
                measured.setdefault(name, []).append(_measure(teacher, student, gold, base))
                print(f"seed {seed}, {name}: {time.process_time() - began:.0f} CPU s", file=sys.stderr, flush=True)
                print("\n".join(_table(measured)), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.causal_distillation", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--task", choices=("summaries", "orders"), default="summaries")
    parser.add_argument("--base", default="kolm-tiny-1")
    parser.add_argument("--n-teacher", type=int, default=200)
    parser.add_argument("--n-inputs", type=int, default=150)
    parser.add_argument("--n-held", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--tokens-per-step", type=int, default=1024)
    parser.add_argument("--teacher-epochs", type=int, default=8)
    parser.add_argument("--teacher-rate", type=float, default=0.004, help="0: by the width of the base")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--arms", nargs="+", choices=ARMS)
    parser.add_argument("--kept", type=Path, default=KEPT)
    return parser


def _gold(spec: Spec, held: Sequence[str]) -> list[dict[str, Any]]:
    """The grammar's answers to held-out mails, of which it is sure."""
    from workers.teachers.grammar.files import shipped_grammar
    from workers.teachers.grammar.model import GrammarModel

    model = GrammarModel(shipped_grammar())
    asked = [
        (text, _said(model, item_request(spec, text, n=3, temperature=0.7, seed=7), temperature=0.7)) for text in held
    ]
    agreed = zip(held, agree(spec, asked), strict=True)
    return [{"input": text, "output": one.answer, "weight": 1.0} for text, one in agreed if one.is_verified]


def _ask(teacher: World, own: AdapterRef, spec: Spec, inputs: Sequence[str], seed: int) -> Taught:
    """What labelling makes of the teacher's samples."""
    from gpu_runners.engine.torch_engine import TorchEngine

    engine = TorchEngine(teacher.base, merged=own.folder)
    temperature = spec.sampling.temperature_labels
    requests = [
        GenerationRequest(
            id=f"{i}-{n}",
            prompt=tuple(prompt_ids(teacher.base, teacher.system, text)),
            max_new_tokens=teacher.max_new_tokens,
            temperature=temperature,
            seed=seed * 1_000_003 + i * N_SAMPLES + n,
            top_logprobs=N_TOP,
        )
        for i, text in enumerate(inputs)
        for n in range(N_SAMPLES)
    ]
    try:
        choices = asyncio.run(_choices(engine, requests, spec))
    finally:
        engine.stop()
    by_input = {text: choices[i * N_SAMPLES : (i + 1) * N_SAMPLES] for i, text in enumerate(inputs)}
    agreed = agree(spec, [(text, [_reply(one) for one in mine]) for text, mine in by_input.items()])
    pairs = [
        {"input": text, "output": one.answer, "weight": 1.0}
        for text, one in zip(inputs, agreed, strict=True)
        if one.is_verified
    ]
    return Taught(pairs=_counted(spec, pairs, by_input), choices=by_input)


def _reply(choice: dict[str, Any]) -> str:
    """A text that reached its limit is no answer."""
    return str(choice["text"]) if choice["finish_reason"] == "stop" else ""


def _counted(spec: Spec, pairs: list[dict[str, Any]], choices: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each pair with its different valid answers, by which it is split where all train."""
    asked = [(pair["input"], [_reply(one) for one in choices[pair["input"]]]) for pair in pairs]
    return [pair | {"samples": one} for pair, one in zip(pairs, valid_samples(spec, asked), strict=True)]


async def _choices(engine: Any, requests: Sequence[GenerationRequest], spec: Spec) -> list[dict[str, Any]]:
    """The answers as the journal keeps them: written and read as on the wire."""
    likeliest = CompletionRequest(
        messages=(), max_tokens=256, logprobs=True, top_logprobs=N_TOP, least_probability=LEAST_PROBABILITY
    )

    places = asyncio.Semaphore(AT_ONCE)

    async def one(request: GenerationRequest) -> dict[str, Any]:
        text, rows, finish = "", [], ""
        async with places:
            async for delta in engine.generate(request):
                text, rows = text + delta.text, [*rows, *map(_chat_logprob, delta.logprobs)]
                finish = delta.finish_reason.value if delta.finish_reason else finish
        choice = {"message": {"content": text}, "finish_reason": finish, "logprobs": {"content": rows}}
        return asdict(read_chat(json.dumps({"choices": [choice]}).encode(), likeliest).choices[0])

    return list(await asyncio.gather(*map(one, requests)))


def _describe(lesson: Taught) -> None:
    differ = [len(pair["samples"]) for pair in lesson.pairs]
    print(
        f"{len(lesson.pairs)} of {len(lesson.choices)} inputs have an answer, {np.mean(differ):.2f} different ones on "
        f"the mean, {sum(n > 1 for n in differ)} more than one",
        flush=True,
    )


def _measure(teacher: World, student: AdapterRef, gold: list[dict[str, Any]], base: CausalBase) -> Held:
    from gpu_runners.engine.torch_engine import TorchEngine

    engine = TorchEngine(base, merged=student.folder)
    requests = [
        GenerationRequest(
            id=str(i),
            prompt=tuple(prompt_ids(base, teacher.system, row["input"])),
            max_new_tokens=teacher.max_new_tokens,
        )
        for i, row in enumerate(gold)
    ]
    try:
        answers = generate_all(engine, requests)
    finally:
        engine.stop()
    exact = [one.text.strip() == row["output"] for one, row in zip(answers, gold, strict=True)]
    return Held(nats=_nats(teacher, student, gold, base), exact=exact)


def _nats(teacher: World, student: AdapterRef, gold: list[dict[str, Any]], base: CausalBase) -> list[float]:
    import torch

    from gpu_runners.distill.causal.batch import make_batch
    from gpu_runners.distill.causal.net import weight_of

    net = net_of(base, student)
    examples = encode(read_rows(jsonl(gold)), base=base, system=teacher.system, max_tokens=4096).examples
    with torch.no_grad():
        batches = [make_batch([[example]], packed=False) for example in examples]
        return [float(net(batch)) / weight_of(batch) for batch in batches]


def _table(measured: dict[str, list[Held]]) -> list[str]:
    lines = [
        "| arm | nats a token | beside the first | exact | beside the first |",
        "|---|---|---|---|---|",
    ]
    first = next(name for name in measured if name != "the teacher")
    nats = {name: np.mean([one.nats for one in runs], axis=0) for name, runs in measured.items()}
    exact = {name: np.mean([one.exact for one in runs], axis=0) for name, runs in measured.items()}
    for name in measured:
        differs = name not in (first, "the teacher")
        lines.append(
            f"| {name} | {nats[name].mean():.4f} | {_interval(nats[name] - nats[first], '.4f') if differs else ''} "
            f"| {100 * exact[name].mean():.1f} % "
            f"| {_interval(100 * (exact[name] - exact[first]), '.1f') if differs else ''} |"
        )
    return lines


def _interval(difference: Any, digits: str) -> str:
    """The mean over the rows with its bootstrap interval."""
    rng = np.random.default_rng(0)
    means = difference[rng.integers(0, len(difference), size=(RESAMPLES, len(difference)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{difference.mean():+{digits}} ({low:+{digits}} to {high:+{digits}})"


if __name__ == "__main__":
    sys.exit(main())
