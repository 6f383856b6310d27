"""arctic-inference's suffix decoding as a token source of our engine: a peer in one run with ours. Its global tree is
warmed with the task's training answers, as our pack is made of them. While it is on, it takes the prompt look-up's
place.

    pip install --no-deps --target .bench-peers/recipes -r tests/bench/peers_recipes.txt   (C++ compiler)
"""

import importlib.util
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deploy.embedded.home import ROOT
from gpu_runners.models.chat import completion_ids
from gpu_runners.models.protocol import DraftKind
from gpu_runners.speculation import batch
from tests.bench.recipe_world import World

PEERS = ROOT / ".bench-peers" / "recipes"
DEPTH = 64
CONTEXT = 64  # tokens of the end that are handed to its look-up


def has_suffix() -> bool:
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    return importlib.util.find_spec("arctic_inference") is not None


class SuffixTrees:
    """One cache, of the training answers. It keeps what it serves, so each measured pass has a new one: on the second
    pass over the same prompts it would know the answers."""

    def __init__(self, task: World) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self._cache, self._numbers = SuffixDecodingCache(DEPTH), itertools.count(1_000_000)
        for i, row in enumerate(task.train):
            self._cache.start_request(i, [0])
            self._cache.add_active_response(i, completion_ids(task.base, row.output))
            self._cache.stop_request(i)

    def source(self, prompt: Sequence[int]) -> "SuffixSource":
        return SuffixSource(self._cache, next(self._numbers), prompt)


class SuffixSource:
    kind = DraftKind.PROMPT

    def __init__(self, cache: Any, number: int, prompt: Sequence[int]) -> None:
        self.key = 0
        self._cache, self._number = cache, number
        self._tokens = list(prompt)
        cache.start_request(number, self._tokens)

    def advance(self, token: int) -> None:
        self._tokens.append(token)
        self._cache.add_active_response(self._number, [token])

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        if ahead:
            return ()
        draft = self._cache.speculate(self._number, self._tokens[-CONTEXT:], max_spec_tokens=most)
        return list(draft.token_ids)

    def __del__(self) -> None:
        self._cache.stop_request(self._number)


@contextmanager
def suffix_drafts(task: World, *, on: bool) -> Iterator[None]:
    if not on:
        yield
        return
    trees = SuffixTrees(task)
    own = batch.PromptSource
    batch.PromptSource = trees.source  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        batch.PromptSource = own  # type: ignore[misc]
