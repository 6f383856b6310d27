"""What recipe packs save on answers that are known, beside what else drafts without a model (no engine needed).

    python -m tests.bench.recipe_replay [DATA] [--sets NAME ...] [--tiny] [--out FILE]

DATA has `humaneval/`, `gsm8k/` and `snips/` in it (default $KOLM_DATA, else ../shared/data). A drafter sees the
observed answers; then every measured answer is walked as greedy verification would
(`backend.domain.recipes.mining.conditional_runs`: an engine's own counters are the same). All draft up to 16 tokens.
Suffix decoding comes from .bench-peers/recipes (tests/bench/peers_recipes.txt); where it is missing it is left out, and
that is said.

coverage: of all tokens, those that are the first one drafted when a draft is asked for at every place (but the first);
accuracy: of the places with a draft, those where it is right; free: of all tokens, those that were drafted and accepted
on the walk; bound: 1 / (1 - free), the most that any speed-up can be.
"""

import argparse
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.domain.recipes.lookup import PackIndex
from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.observing import observe
from backend.domain.recipes.pack import RecipePack
from gpu_runners.speculation.sources import PromptSource
from tests.bench.recipe_replay_data import SETS, Encoder, ReplaySet, replay_set
from tests.bench.recipe_replay_peers import NgramTable, PromptLookup, SuffixDecoding, has_suffix_decoding
from tests.greedy_replay import GreedyDraft, Proposer, Replayed, replay

MAX_DRAFT = 16
# seed 001's table: coverage of its packs in percent, and the speed-up it claims
SEED = {"HumanEval": (71, "3.05"), "SNIPS": (83, "4.16"), "GSM8K": (52, "2.4"), "prose": (22, "1.3")}


@dataclass(kw_only=True)
class Arm:
    """`drafters()` gives a `proposer` that has seen none of the measured answers; `proposer(i)` drafts for answer i.
    `n_bytes` is what it reads from, 0 for nothing stored."""

    name: str
    drafters: Callable[[], Callable[[int], Any]]
    n_bytes: int = 0
    note: str = ""


@dataclass(kw_only=True)
class Row:
    """`n_hits`: places with a draft when every place is asked; `n_right`: those whose first token came."""

    arm: Arm
    counts: Replayed
    n_hits: int
    n_right: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("KOLM_DATA") or "../shared/data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--tiny", action="store_true", help="in the tokens of kolm-tiny-1")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    parts = []
    for name in given.sets:
        try:
            one = replay_set(name, given.data, Encoder.of_tiny_base if given.tiny else None)
        except FileNotFoundError as missing:
            print(f"There is no {missing.filename}: give the folder with humaneval/, gsm8k/ and snips/, or KOLM_DATA.")
            return 1
        part = "\n".join(report(one, measured(one)))
        print(part, flush=True)
        parts.append(part)
    if given.out:
        given.out.write_text("\n\n".join(parts) + "\n")
    return 0


def measured(one: ReplaySet) -> list[Row]:
    answers = [answer for _, answer in one.measured]
    rows = []
    for arm in arms(one):
        counts = replay(answers, _closing(arm.drafters()), max_draft=MAX_DRAFT)
        n_hits, n_right = everywhere(answers, arm.drafters())
        rows.append(Row(arm=arm, counts=counts, n_hits=n_hits, n_right=n_right))
    return rows


def arms(one: ReplaySet) -> Iterator[Arm]:
    prompts = [prompt for prompt, _ in one.measured]
    packs = {
        "pack": made(one),
        "pack, 16 KiB": made(one, max_bytes=16_384),
        "pack, no copies": made(one, copies=False),
        "pack, no copies, no shapes": made(one, copies=False, shapes=False),
    }
    for name, pack in packs.items():
        yield _pack_arm(name, pack, one)
    yield Arm(name="prompt look-up", drafters=lambda: lambda i: PromptLookup(prompts[i]))
    table = NgramTable([answer for _, answer in one.observed])
    yield Arm(name="n-gram table", drafters=lambda: lambda i: table.cursor(), n_bytes=table.n_bytes)
    if has_suffix_decoding():
        n_tokens = sum(len(answer) for _, answer in one.observed)
        yield Arm(
            name="suffix decoding",
            drafters=lambda: SuffixDecoding(one.observed).proposer(prompts),
            note=f"a tree over {n_tokens:,} tokens",
        )
    index = PackIndex(packs["pack"], one.token_texts)
    yield Arm(name="pack, then prompt", drafters=lambda: lambda i: PackThenPrompt(index, prompts[i], (one.end,)))


class PackThenPrompt:
    """The two weight-free sources of ours that need no schema; without gates."""

    def __init__(self, index: PackIndex, prompt: Sequence[int], end_ids: Sequence[int]) -> None:
        self._pack, self._prompt = GreedyDraft(index.cursor(prompt), end_ids), PromptSource(prompt)

    def advance(self, token: int) -> None:
        self._pack.advance(token)
        self._prompt.advance(token)

    def propose(self, most: int) -> Sequence[int]:
        return self._pack.propose(most) or self._prompt.propose((), most)


def made(one: ReplaySet, **options: Any) -> RecipePack:
    return build_pack(
        [observe(answer, [], prompt=prompt) for prompt, answer in one.observed],
        one.token_texts,
        tokenizer_sha256="00" * 32,
        base="replayed",
        options=PackOptions(max_draft=MAX_DRAFT, **options),
        end_ids=(one.end,),
    )


def everywhere(answers: Sequence[Sequence[int]], proposer: Callable[[int], Proposer]) -> tuple[int, int]:
    """(places with a draft, places whose first drafted token came) when every place but the first is asked."""
    n_hits = n_right = 0
    for i, answer in enumerate(answers):
        drafts = proposer(i)
        for at, token in enumerate(answer):
            if at and (draft := drafts.propose(1)):
                n_hits += 1
                n_right += draft[0] == token
            drafts.advance(token)
        if hasattr(drafts, "close"):
            drafts.close()
    return n_hits, n_right


def report(one: ReplaySet, rows: Sequence[Row]) -> list[str]:
    n_observed, n_tokens = sum(len(answer) for _, answer in one.observed), rows[0].counts.n_tokens
    seed = next(((c, claim) for name, (c, claim) in SEED.items() if one.name.startswith(name)), None)
    lines = [
        f"### {one.name}",
        "",
        f"Observed; measured: {one.about}. {len(one.observed):,} answers of {n_observed:,} tokens; "
        f"{len(one.measured):,} of {n_tokens:,}.",
        "",
        "| drafts | coverage | accuracy | free | bound | tokens a step | of drafted accepted | size |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(row) for row in rows),
    ]
    if seed:
        coverage, claim = seed
        bound = 1 / (1 - coverage / 100)
        lines.append(
            f"| seed 001 claims | {coverage} % | 99.9 to 100 % | {coverage} % | {bound:.2f} | {claim} (wall) | | |"
        )
    if not has_suffix_decoding():
        lines += ["", "Suffix decoding is left out: .bench-peers/recipes has no arctic-inference."]
    return lines


def _line(row: Row) -> str:
    counts = row.counts
    coverage, free = row.n_right / (counts.n_tokens or 1), counts.n_accepted / (counts.n_tokens or 1)
    cells = (
        row.arm.name,
        f"{coverage:.1%}",
        f"{row.n_right / (row.n_hits or 1):.1%}",
        f"{free:.1%}",
        f"{1 / (1 - free):.2f}",
        f"{counts.n_tokens / counts.n_steps:.2f}",
        f"{counts.n_accepted / (counts.n_drafted or 1):.1%}",
        row.arm.note or (f"{row.arm.n_bytes / 1000:,.0f} KB" if row.arm.n_bytes else ""),
    )
    return f"| {' | '.join(cells)} |"


def _pack_arm(name: str, pack: RecipePack, one: ReplaySet) -> Arm:
    index, data = PackIndex(pack, one.token_texts), pack.to_bytes()
    deflated = len(zlib.compress(data, 9))
    copies = f" and {len(pack.copies):,} of the input" if pack.copies else ""
    note = f"{len(pack.recipes):,} recipes{copies}, {len(data) / 1000:,.0f} KB, deflated {deflated / 1000:,.0f} KB"
    return Arm(name=name, drafters=lambda: pack_drafter(index, one), n_bytes=len(data), note=note)


def pack_drafter(index: PackIndex, one: ReplaySet) -> Callable[[int], GreedyDraft]:
    return lambda i: GreedyDraft(index.cursor(one.measured[i][0]), (one.end,))


def _closing(proposer: Callable[[int], Any]) -> Callable[[int], Any]:
    """Ends a request before the next one begins, where the proposer knows requests."""
    open_now: list[Any] = []

    def next_one(i: int) -> Any:
        if open_now and hasattr(open_now[-1], "close"):
            open_now.pop().close()
        open_now.append(proposer(i))
        return open_now[-1]

    return next_one


if __name__ == "__main__":
    raise SystemExit(main())
