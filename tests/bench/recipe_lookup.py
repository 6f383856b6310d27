"""What a look-up costs: microseconds for a token advanced and for a proposal, beside suffix decoding (one core).

    python -m tests.bench.recipe_lookup [DATA] [--rounds 5] [--out FILE]

The pack is that of SNIPS as JSON (tests.bench.recipe_replay), the tokens are the measured answers', taken one by one as
an engine takes them that accepts nothing. CPU time; each figure is the best of the rounds, the loop's own cost taken
off. `floor` is what the interpreter takes for calls that do nothing: one method for a token, one for a proposal.
"""

import argparse
import itertools
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backend.domain.recipes.lookup import PackCursor, PackIndex
from backend.domain.recipes.pack import RecipePack
from tests.bench.recipe_replay import MAX_DRAFT, made
from tests.bench.recipe_replay_data import ReplaySet, replay_set
from tests.bench.recipe_replay_peers import MAX_CONTEXT, SuffixDecoding, has_suffix_decoding

Answers = Sequence[Sequence[int]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("KOLM_DATA") or "../shared/data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    try:
        one = replay_set("SNIPS as JSON", given.data)
    except FileNotFoundError as missing:
        print(f"There is no {missing.filename}: give the folder that has snips/ in it, or set KOLM_DATA.")
        return 1
    text = "\n".join(report(one, given.rounds))
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    return 0


def report(one: ReplaySet, rounds: int) -> list[str]:
    answers = [answer for _, answer in one.measured]
    n_tokens = sum(len(answer) for answer in answers)
    with_copies = made(one)
    with_shapes, literal = made(one, copies=False), made(one, shapes=False, copies=False)
    rows = [
        ("floor: calls of empty methods", *timed(answers, lambda i: _Empty(), rounds)),
        (f"literal index, {len(literal.recipes):,} recipes", *timed(answers, cursors(literal, one), rounds)),
        (f"literal index and shapes, {len(with_shapes.recipes):,} recipes",
         *timed(answers, cursors(with_shapes, one), rounds)),
        (f"copies of the input too, {len(with_copies.copies):,} recipes more",
         *timed(answers, cursors(with_copies, one), rounds)),
    ]  # fmt: skip
    if has_suffix_decoding():
        observed = sum(len(answer) for _, answer in one.observed)
        cache, prompts = SuffixDecoding(one.observed).cache, [prompt for prompt, _ in one.measured]
        took = timed(answers, lambda i: _Suffix(cache, prompts[i]), rounds)
        rows.append((f"suffix decoding, a tree over {observed:,} tokens", *took))
    return [
        f"{n_tokens:,} tokens of {len(answers):,} answers; CPython {platform.python_version()}.",
        "",
        "| | us a token advanced | us a proposal |",
        "|---|---|---|",
        *(f"| {name} | {advance:.2f} | {propose:.2f} |" for name, advance, propose in rows),
    ]


def cursors(pack: RecipePack, one: ReplaySet) -> Callable[[int], PackCursor]:
    index = PackIndex(pack, one.token_texts)
    return lambda i: index.cursor(one.measured[i][0])


def timed(answers: Answers, proposer: Callable[[int], Any], rounds: int) -> tuple[float, float]:
    """(us a token advanced, us a proposal), once the automata have learnt their moves in the first walk."""
    n_tokens = sum(len(answer) for answer in answers)
    loop = min(_walk(answers, lambda i: _Empty(), _nothing) for _ in range(rounds))
    advance = min(_walk(answers, proposer, _advance) for _ in range(rounds + 1))
    both = min(_walk(answers, proposer, _propose_and_advance) for _ in range(rounds + 1))
    return (advance - loop) / n_tokens * 1e6, (both - advance) / n_tokens * 1e6


def _walk(answers: Answers, proposer: Callable[[int], Any], walk: Callable[[Any, Sequence[int]], None]) -> float:
    drafts = [proposer(i) for i in range(len(answers))]
    begin = time.process_time()
    for one, answer in zip(drafts, answers, strict=True):
        walk(one, answer)
    seconds = time.process_time() - begin
    for one in drafts:
        if hasattr(one, "close"):
            one.close()
    return seconds


def _nothing(drafts: Any, answer: Sequence[int]) -> None:
    for _ in answer:
        pass


def _advance(drafts: Any, answer: Sequence[int]) -> None:
    for token in answer:
        drafts.advance(token)


def _propose_and_advance(drafts: Any, answer: Sequence[int]) -> None:
    for token in answer:
        drafts.propose(MAX_DRAFT)
        drafts.advance(token)


class _Suffix:
    """Its tree learns each token as it comes: that is its way to advance."""

    names = itertools.count()

    def __init__(self, cache: Any, prompt: Sequence[int]) -> None:
        self._cache, self._name, self._tokens = cache, next(self.names), list(prompt)
        cache.start_request(self._name, self._tokens)

    def advance(self, token: int) -> None:
        self._tokens.append(token)
        self._cache.add_active_response(self._name, [token])

    def propose(self, most: int) -> Sequence[int]:
        return self._cache.speculate(self._name, self._tokens[-MAX_CONTEXT:], max_spec_tokens=most).token_ids

    def close(self) -> None:
        self._cache.stop_request(self._name)
        self._cache.evict_cached_response(self._name)


class _Empty:
    def advance(self, token: int) -> None:
        pass

    def propose(self, most: int) -> Sequence[int]:
        return ()


if __name__ == "__main__":
    raise SystemExit(main())
