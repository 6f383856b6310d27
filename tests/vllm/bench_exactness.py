"""`python -m tests.vllm.bench_exactness [--prompts N] [--draws N] [--out FILE]`: whether a real vLLM on the CPU answers
the same with drafts as without (the engine is that of .venv-vllm; half an hour on two busy cores).

Greedy: every prompt is asked twice, in batches of 32 that are put together otherwise each time: plainly, and with one
way to draft. Prompts take turns through four tenants with prompts of their own, two adapters or none, a schema or none,
so that a batch mixes all of them. "control" drafts in neither: what differs there is vLLM's own. An answer that differs
is asked for once more, alone and with log-probs; where the two likeliest tokens are less than 1e-3 nats apart at the
first place that differs, it counts as a tie, else as wrong.

Sampled, without seeds: beginnings of 2 to 6 tokens, drawn with drafts and without, by chi-square. With seeds: answers
that are the same.
"""

import argparse
import datetime
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

from scipy import stats

from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import AdapterRef, Drafting, DraftKind, GenerationRequest, PackRef
from gpu_runners.tiny_base.train import NAME, ensure
from tests.gpu_runners.speculation.tiny_task import requests
from tests.tiny_bases import BASES
from tests.vllm import engine, recipe_engine
from tests.vllm.recipe_engine import Answer, Asked
from tests.vllm.recipe_requests import CHAIN, HELD, adapter, always, hostile, pack_of, request, written

FIELDS = ("delivery_city", "delivery_day", "main_dish", "number_of_people")
AT_ONCE = 32
CHUNK = 256
N_LEARNED = 24  # answers a pack is made from
TIE_NATS = 1e-3
WAYS = ("control", "pack", "chain", "chain, held back", "prompt look-up", "another's pack", "hostile pack")
SAMPLINGS = ({"temperature": 1.0}, {"temperature": 0.8, "top_k": 5}, {"temperature": 0.9, "top_p": 0.8})
LENGTHS = (2, 3, 4, 5, 6)


class Place(NamedTuple):
    """Whose prompts these are; each has a pack."""

    tenant: int
    adapter: int  # 0: none
    is_held: bool


PLACES = tuple(Place(*one) for one in product(range(4), range(3), (False, True)))


@dataclass(slots=True)
class Counted:
    n: int = 0
    same: int = 0
    ties: int = 0
    drafted: int = 0
    accepted: int = 0
    margins: list[float] = field(default_factory=list)

    def row(self, name: str) -> str:
        wrong = self.n - self.same - self.ties
        return f"| {name} | {self.n:,} | {self.same:,} | {self.ties} | {wrong} | {self.drafted:,} | {self.accepted:,} |"


class Bench:
    def __init__(self, asked: Asked, base: CausalBase, folder: Path, n_prompts: int) -> None:
        self._asked, self._base, self._folder = asked, base, folder
        self._adapters: dict[int, AdapterRef] = {n: adapter(base, folder / str(n), number=n) for n in (1, 2)}
        self._texts = iter(list(dict.fromkeys(requests(6 * n_prompts + 4000)))[: n_prompts + 4000])
        self.packs: dict[Place, PackRef] = {}
        self.n_recipes = self.n_copies = 0

    def prompt(self, tenant: int) -> list[int]:
        fields = ", ".join(FIELDS[tenant:] + FIELDS[:tenant])
        system = f"Turn the message into a record.\nAnswer with JSON alone that has these fields: {fields}"
        return prompt_ids(self._base, system, next(self._texts))

    def request(
        self, place: Place, prompt: Sequence[int], drafting: Drafting | None, **more: object
    ) -> GenerationRequest:
        fields: dict[str, object] = {
            "adapter": self._adapters.get(place.adapter),
            "constraint": HELD if place.is_held else None,
            "tenant": f"tenant-{place.tenant}",
            "cache_salt": f"tenant-{place.tenant}",
        }
        return request(prompt, drafting, **{**fields, **more})

    def learn(self) -> None:
        asked = [(place, self.prompt(place.tenant)) for place in PLACES for _ in range(N_LEARNED)]
        answers = self._asked.ask([self.request(*one, None) for one in asked], at_once=AT_ONCE)
        for place in PLACES:
            mine = [(one.tokens, prompt) for (of, prompt), one in zip(asked, answers, strict=True) if of == place]
            pack = pack_of(self._base, *zip(*mine, strict=True))
            self.packs[place] = written(pack, self._folder)
            self.n_recipes += len(pack.recipes)
            self.n_copies += len(pack.copies)
        self._hostile = hostile(self._base, pack_of(self._base, [answers[0].tokens]), self._folder)

    def drafting(self, way: str, place: Place) -> Drafting | None:
        mine = self.packs[place]
        other = Place((place.tenant + 1) % 4, (place.adapter + 1) % 3, place.is_held)
        return {
            "control": None,
            "pack": always(mine),
            "chain": always(mine, *CHAIN),
            "chain, held back": Drafting(kinds=CHAIN, pack=mine),
            "prompt look-up": always(None, DraftKind.PROMPT),
            "another's pack": always(self.packs[other], *CHAIN),
            "hostile pack": always(self._hostile),
        }[way]

    def greedy(self, n_prompts: int) -> dict[str, Counted]:
        found = {way: Counted() for way in WAYS}
        turns = [(place, way) for way in WAYS for place in PLACES]
        for begin in range(0, n_prompts, CHUNK):
            chunk = [turns[i % len(turns)] for i in range(begin, min(begin + CHUNK, n_prompts))]
            rows = [(place, way, self.prompt(place.tenant)) for place, way in chunk]
            plain = self._asked.ask([self.request(place, prompt, None) for place, _, prompt in rows], at_once=AT_ONCE)
            order = random.Random(begin).sample(range(len(rows)), len(rows))
            drafted = self._asked.ask([self._drafted(*rows[i]) for i in order], at_once=AT_ONCE)
            for i, answer in zip(order, drafted, strict=True):
                self._count(found[rows[i][1]], rows[i], plain[i], answer)
            print(f"{begin + len(rows):,} of {n_prompts:,} prompts", file=sys.stderr, flush=True)
        return found

    def sampled(self, n_draws: int) -> Iterator[tuple[str, float, int]]:
        """(what was compared, p, tokens that were drafted)"""
        for sampling, tenant in product(SAMPLINGS, (0, 1)):
            place = Place(tenant, 0, False)
            prompt = self.prompt(tenant)
            plain, _ = self._drawn(place, prompt, None, n_draws, sampling)
            for way in ("pack", "hostile pack"):
                drafted, n_drafted = self._drawn(place, prompt, self.drafting(way, place), n_draws, sampling)
                for n in LENGTHS:
                    p = p_value(beginnings(plain, n), beginnings(drafted, n))
                    if p is not None:
                        yield f"{sampling}, tenant {tenant}, {way}, {n} tokens", p, n_drafted
            print(f"{sampling} of tenant {tenant} drawn", file=sys.stderr, flush=True)

    def seeded(self, n: int) -> tuple[int, int]:
        """(answers, of these the same with drafts as without), beside greedy ones that are drafted for."""
        rows = [(place, self.prompt(place.tenant)) for place in (PLACES * (n // len(PLACES) + 1))[:n]]
        more = [{"temperature": 0.9, "top_k": 40, "seed": 1000 + i} for i in range(n)]
        plain = self._asked.ask(
            [self.request(*row, None, **one) for row, one in zip(rows, more, strict=True)], at_once=AT_ONCE
        )
        asked = [
            pair
            for (place, prompt), one in zip(rows, more, strict=True)
            for pair in (
                self.request(place, prompt, self.drafting("chain", place)),
                self.request(place, prompt, self.drafting("chain", place), **one),
            )
        ]
        drafted = self._asked.ask(asked, at_once=AT_ONCE)[1::2]
        return n, sum(a.tokens == b.tokens for a, b in zip(plain, drafted, strict=True))

    def _drafted(self, place: Place, way: str, prompt: Sequence[int]) -> GenerationRequest:
        return self.request(place, prompt, self.drafting(way, place))

    def _drawn(
        self, place: Place, prompt: Sequence[int], drafting: Drafting | None, n: int, sampling: dict[str, float]
    ) -> tuple[list[tuple[int, ...]], int]:
        asked = [self.request(place, prompt, drafting, max_new_tokens=max(LENGTHS), **sampling) for _ in range(n)]
        answers = self._asked.ask(asked, at_once=4 * AT_ONCE)
        return [one.tokens for one in answers], sum(one.drafted for one in answers)

    def _count(self, into: Counted, row: tuple[Place, str, list[int]], plain: Answer, drafted: Answer) -> None:
        into.n += 1
        into.drafted += drafted.drafted
        into.accepted += drafted.accepted
        if drafted.tokens == plain.tokens:
            into.same += 1
            return
        pairs = zip(plain.tokens, drafted.tokens, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(plain.tokens), len(drafted.tokens)))
        (alone,) = self._asked.ask([self.request(row[0], row[2], None, top_logprobs=2)])
        agrees = alone.tokens[:at] == plain.tokens[:at] and at < len(alone.tops)
        margin = alone.tops[at][0][1] - alone.tops[at][1][1] if agrees else float("inf")
        into.margins.append(margin)
        into.ties += margin < TIE_NATS
        print(f"differs at {at} of {len(plain.tokens)}: {row[1]}, {row[0]}, margin {margin:.2e}", file=sys.stderr)


def beginnings(drawn: Sequence[tuple[int, ...]], n: int) -> Counter[tuple[int, ...]]:
    return Counter(tokens[:n] for tokens in drawn)


def p_value(a: Counter[tuple[int, ...]], b: Counter[tuple[int, ...]]) -> float | None:
    """Of the chi-square test that both were drawn from one distribution, rare ones pooled; None where all are one."""
    common = [one for one in a | b if a[one] + b[one] >= 20]
    rows = [[counts[one] for one in common] + [counts.total() - sum(counts[o] for o in common)] for counts in (a, b)]
    columns = [column for column in zip(*rows, strict=True) if sum(column)]
    if len(columns) < 2:
        return None
    return float(stats.chi2_contingency(list(zip(*columns, strict=True))).pvalue)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vllm.bench_exactness", description=__doc__)
    parser.add_argument("--prompts", type=int, default=2352)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seeded", type=int, default=240)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    base = open_causal_base(NAME, base_dir=ensure(BASES).parent)
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as name:
        folder = Path(name)
        python = engine.VENV / "bin" / "python"
        with recipe_engine.running(python, base.folder.parent, folder) as asked:
            text = "\n".join(told(Bench(asked, base, folder, chosen.prompts), asked, chosen))
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n", "utf-8")
    return 0


def told(bench: Bench, asked: Asked, chosen: argparse.Namespace) -> Iterator[str]:
    bench.learn()
    found = bench.greedy(chosen.prompts)
    yield (
        f"{datetime.date.today()}, load {os.getloadavg()[1]:.1f}: {chosen.prompts:,} prompts, {len(PLACES)} packs of"
        f" {bench.n_recipes:,} recipes and {bench.n_copies:,} copy recipes"
    )
    yield ""
    yield "| drafts | prompts | same answer | ties | wrong | drafted tokens | accepted |"
    yield "|---" * 7 + "|"
    for way, one in found.items():
        yield one.row(way)
    margins = sorted(margin for one in found.values() for margin in one.margins)
    yield f"\nmargins where answers differ (nats): {', '.join(f'{one:.1e}' for one in margins) or 'none'}"
    n, same = bench.seeded(chosen.seeded)
    yield f"seeded: {same:,} of {n:,} sampled answers are the same with drafts as without"
    tests = list(bench.sampled(chosen.draws))
    least = min(tests, key=lambda one: one[1])
    below = sum(p < 0.05 for _, p, _ in tests)
    yield (
        f"sampled: {len(tests)} chi-square tests of {chosen.draws:,} draws each: {below} below 0.05, least p"
        f" {least[1]:.2g} ({least[0]}), {min(n for *_, n in tests):,} drafted tokens or more each"
    )
    yield f"errors in drafts: {asked.n_errors()}"


if __name__ == "__main__":
    sys.exit(main())
