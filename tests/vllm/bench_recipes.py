"""`python -m tests.vllm.bench_recipes [--out FILE]`: what packs give on a real vLLM, on the CPU (the engine is that of
.venv-vllm; some ten minutes on two cores).

The task `orders` of tests.bench.recipe_world: held-out messages, answered greedily under the schema by its adapter on
kolm-tiny-1, 1, 8 and 32 at a time, without drafts and with each way to draft, in turn and in another order each round;
vLLM's own prompt look-up in an engine of its own. Printed are the engine's counters (steps are forward passes that gave
a request tokens), whether all answers are those without drafts, and the wall against no drafts: the median and range of
the rounds' ratios. "always" drafts whatever the measured cost says. A toy on a shared machine: walls say whether drafts
pay here and nothing of a larger model.
"""

import argparse
import datetime
import hashlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from gpu_runners.models.answers import constraint_of
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import Drafting, DraftKind, GenerationRequest, PackRef
from tests.bench.recipe_engines import pack_of
from tests.bench.recipe_world import World, smaller, world
from tests.vllm import engine, recipe_engine
from tests.vllm.recipe_engine import Answer, Asked

CHAIN = (DraftKind.PACK, DraftKind.SCHEMA, DraftKind.PROMPT)
WAYS: dict[str, tuple[tuple[DraftKind, ...], bool]] = {
    "cold": ((), True),
    "prompt": ((DraftKind.PROMPT,), True),
    "schema": ((DraftKind.SCHEMA,), True),
    "pack": ((DraftKind.PACK,), True),
    "pack, always": ((DraftKind.PACK,), False),
    "chain": (CHAIN, True),
    "chain, always": (CHAIN, False),
}
_NUMBERS = count()


@dataclass(slots=True, kw_only=True)
class Measured:
    walls: list[float] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    n_different: int = 0

    def row(self, name: str, at_once: int, cold: "Measured") -> str:
        n_tokens = sum(len(one.tokens) for one in self.answers)
        drafted, accepted = sum(one.drafted for one in self.answers), sum(one.accepted for one in self.answers)
        n_steps = sum(one.steps for one in self.answers) or n_tokens - accepted
        share = f"{accepted / drafted:.1%}" if drafted else "–"
        ratios = [a / b for a, b in zip(cold.walls, self.walls, strict=False)]
        wall = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        return (
            f"| {at_once} | {name} | {n_tokens / n_steps:.2f} | {share} | {accepted / n_tokens:.0%} | {wall} |"
            f" {self.n_different} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vllm.bench_recipes", description=__doc__)
    parser.add_argument("--held", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    task = smaller(world("orders", Path()), chosen.held)
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as name:
        found = measured(task, Path(name), chosen)
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    head = f"{datetime.date.today()}, load {load}, {chosen.held} prompts, {chosen.rounds} rounds"
    columns = "| at once | way | tokens per step | accepted | coverage | wall against cold | answers that differ |"
    lines = [head, "", columns, "|---" * 7 + "|"]
    lines += [
        one.row(way, at_once, found[at_once, "cold"]) for (at_once, way), one in sorted(found.items(), key=_order)
    ]
    text = "\n".join(lines)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n", "utf-8")
    return 0


def measured(task: World, folder: Path, chosen: argparse.Namespace) -> dict[tuple[int, str], Measured]:
    data = pack_of(task).to_bytes()
    ref = PackRef(key=hashlib.sha256(data).hexdigest(), path=folder / "recipes.json")
    ref.path.write_bytes(data)
    found: dict[tuple[int, str], Measured] = {}
    for speculation, ways in (("recipes", list(WAYS)), ("ngram", ["vLLM's own prompt look-up"])):
        (folder / speculation).mkdir()
        with recipe_engine.running(
            engine.VENV / "bin" / "python",
            task.base.folder.parent,
            folder / speculation,
            speculation=speculation,
            context=1024,
        ) as asked:
            _rounds(asked, task, ref, ways, chosen, found)
    for (at_once, _), one in found.items():
        truth = found[at_once, "cold"].answers
        n = len(truth) // chosen.rounds
        one.n_different = sum(a.tokens != b.tokens for a, b in zip(one.answers, truth[:n] * chosen.rounds, strict=True))
    return found


def _rounds(
    asked: Asked,
    task: World,
    pack: PackRef,
    ways: Sequence[str],
    chosen: argparse.Namespace,
    found: dict[tuple[int, str], Measured],
) -> None:
    for number in range(chosen.rounds + 1):  # the first warms up and is not counted
        for at_once in chosen.batches:
            for way in random.Random(number).sample(ways, len(ways)):
                requests = _requests(task, way, pack)
                began = time.perf_counter()
                answers = asked.ask(requests, at_once=at_once)
                wall = time.perf_counter() - began
                if number:
                    one = found.setdefault((at_once, way), Measured())
                    one.walls.append(wall)
                    one.answers += answers
        print(f"round {number} of {chosen.rounds}", file=sys.stderr, flush=True)


def _requests(task: World, way: str, pack: PackRef) -> list[GenerationRequest]:
    kinds, is_gated = WAYS.get(way, ((), True))
    adapter = task.ref(pack.path.parent / "adapter")
    drafting = Drafting(kinds=kinds, pack=pack if DraftKind.PACK in kinds else None, is_gated=is_gated)
    return [
        GenerationRequest(
            id=f"r{next(_NUMBERS)}",
            prompt=tuple(prompt_ids(task.base, task.system, text)),
            max_new_tokens=task.max_new_tokens,
            adapter=adapter,
            constraint=constraint_of(task.answer),
            drafting=drafting if kinds else None,
        )
        for text in task.held
    ]


def _order(item: tuple[tuple[int, str], Measured]) -> tuple[int, int]:
    at_once, way = item[0]
    return at_once, [*WAYS, way].index(way)


if __name__ == "__main__":
    sys.exit(main())
