"""Verification of drafted tokens in our own engine: that answers stay what they are, and what a step costs.

    python -m tests.bench.draft_verification [--prompts 2000] [--rounds 5] [--out docs/benchmarks/draft-verification.md]

On kolm-tiny-1 with chats of its own kind that it was not trained on; drafts are made by hand from the answers without
drafts: right ones (16 and 4 tokens), wrong ones, right ones with wrong ends, and a mixture with ids that no base has.
Sources and gates are no part of this: every draft is verified.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import GenerationRequest
from gpu_runners.tiny_base.chats import chats
from gpu_runners.tiny_base.train import NAME, ensure
from tests.gpu_runners.engine.hand_drafts import (
    Answer,
    HandDrafts,
    Making,
    answers_of,
    drafting,
    nothing,
    ragged,
    right,
    wrong,
)
from tests.tiny_bases import BASES
from tests.web_stack import machine

SEED = 90_000_001  # no seed of the base's training
AT_ONCE = 128
BATCHES = (1, 8, 32)
KINDS: dict[str, Callable[[dict[str, list[int]]], Making]] = {
    "none": lambda known: nothing,
    "right, 16": lambda known: right(known, 16),
    "right, 4": lambda known: right(known, 4),
    "3 right of 8": lambda known: wrong(known, 8, after=3),
    "wrong, 4": lambda known: wrong(known, 4),
    "wrong, 16": lambda known: wrong(known, 16),
    "mixture": lambda known: ragged(known, vocab_size=1000),
}
EXACT = ("right, 16", "3 right of 8", "mixture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """`seconds` is the shortest of all rounds; counts are of one round."""

    seconds: float
    n_tokens: int
    n_steps: int
    drafted: int
    accepted: int
    same: int


def main() -> int:
    given = _arguments()
    base = open_causal_base(NAME, base_dir=ensure(BASES).parent)
    engine = TorchEngine(base, device="cpu", max_running=32, drafts=HandDrafts(nothing))
    try:
        lines = [*_exactness(engine, base, given.prompts), "", *_walls(engine, base, given.rounds)]
    finally:
        engine.stop()
    report = "\n".join(["# Verification of drafted tokens", "", machine(), "", *lines, ""])
    print(report)
    if given.out:
        given.out.write_text(report)
    return 0


def requests(base: CausalBase, n: int, *, temperature: float = 0.0, most: int = 32) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            id=f"{temperature}-{i}",
            prompt=tuple(prompt_ids(base, chat.system, chat.user)[-base.context + most :]),
            max_new_tokens=most,
            temperature=temperature,
            seed=i,
        )
        for i, chat in enumerate(islice(chats(SEED), n))
    ]


def _exactness(engine: TorchEngine, base: CausalBase, n: int) -> list[str]:
    lines = [f"## Same answers, {n:,} prompts, at most 32 tokens, 32 rows at a time", ""]
    lines += ["| drafts | greedy: same | tokens per step | accepted | seeded, T = 0.8: same |", "|---|---|---|---|---|"]
    arms: dict[str, list[Arm]] = {}
    for temperature in (0.0, 0.8):
        asked = requests(base, n, temperature=temperature)
        plain = _answers(engine, asked, nothing)
        known = {request.id: answer.ids for request, answer in zip(asked, plain, strict=True)}
        for name in EXACT:
            answers = _answers(engine, asked, KINDS[name](known), drafts=True)
            arms.setdefault(name, []).append(_arm(answers, plain, 0.0))
            print(f"T {temperature} {name:14} same {arms[name][-1].same}/{n}", flush=True)
    for name, (greedy, seeded) in arms.items():
        lines.append(
            f"| {name} | {greedy.same:,} of {n:,} | {greedy.n_tokens / greedy.n_steps:.2f} | "
            f"{greedy.accepted:,} of {greedy.drafted:,} | {seeded.same:,} of {n:,} |"
        )
    return lines


def _walls(engine: TorchEngine, base: CausalBase, rounds: int) -> list[str]:
    """Answers of 64 tokens to prompts of 40 random ones: every arm does equal work."""
    lines = [f"## Wall time, 64 tokens an answer, shortest of {rounds} rounds by turns", ""]
    lines += ["| rows | drafts | tok/s | against none | ms a step | tokens per step |", "|---|---|---|---|---|---|"]
    for n in BATCHES:
        asked, plain = _whole(engine, _endless(base, 8 * n), n)
        known = {request.id: answer.ids for request, answer in zip(asked, plain, strict=True)}
        best: dict[str, Arm] = {}
        for _ in range(rounds):
            for name, kind in KINDS.items():
                began = time.perf_counter()
                answers = _answers(engine, asked, kind(known), drafts=name != "none")
                one = _arm(answers, plain, time.perf_counter() - began)
                if name not in best or one.seconds < best[name].seconds:
                    best[name] = one
        for name, arm in best.items():
            steps = arm.n_steps / n  # rows go in step
            lines.append(
                f"| {n} | {name} | {arm.n_tokens / arm.seconds:,.0f} | {best['none'].seconds / arm.seconds:.2f} | "
                f"{1000 * arm.seconds / steps:.1f} | {arm.n_tokens / arm.n_steps:.2f} |"
            )
            print(lines[-1], flush=True)
    return lines


def _endless(base: CausalBase, n: int) -> list[GenerationRequest]:
    rng = random.Random(n)
    prompts = [tuple(rng.randrange(10, 1000) for _ in range(40)) for _ in range(n)]
    return [
        GenerationRequest(id=f"{n}-{i}", prompt=prompt, max_new_tokens=64, temperature=1.5, seed=i)
        for i, prompt in enumerate(prompts)
    ]


def _whole(
    engine: TorchEngine, asked: Sequence[GenerationRequest], n: int
) -> tuple[list[GenerationRequest], list[Answer]]:
    """`n` of them whose answers do not end by themselves."""
    answers = zip(asked, _answers(engine, asked, nothing), strict=True)
    pairs = [(request, answer) for request, answer in answers if len(answer.ids) == request.max_new_tokens][:n]
    return [request for request, _ in pairs], [answer for _, answer in pairs]


def _answers(
    engine: TorchEngine, asked: Sequence[GenerationRequest], make: Making, *, drafts: bool = False
) -> list[Answer]:
    engine._scheduler.drafting.drafts = HandDrafts(make)
    found: list[Answer] = []
    for begin in range(0, len(asked), AT_ONCE):
        some = asked[begin : begin + AT_ONCE]
        found += answers_of(engine, [drafting(request) for request in some] if drafts else some)
    return found


def _arm(answers: Sequence[Answer], plain: Sequence[Answer], seconds: float) -> Arm:
    counts = [answer.last.counts for answer in answers]
    return Arm(
        seconds=seconds,
        n_tokens=sum(one.completion_tokens for one in counts),
        n_steps=sum(one.steps for one in counts),
        drafted=sum(one.drafted_tokens for one in counts),
        accepted=sum(one.accepted_tokens for one in counts),
        same=sum(a.ids == b.ids and a.text == b.text for a, b in zip(answers, plain, strict=True)),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="verification of drafted tokens in our own engine")
    parser.add_argument("--prompts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
