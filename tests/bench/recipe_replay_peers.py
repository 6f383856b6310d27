"""What else drafts without a model, as proposers of `backend.domain.recipes.replay`.

`prompt` is prompt look-up as the transformers library does it (the last two tokens, else the last; what followed them
first). `n-gram` is a static look-up table like llama.cpp's: after the last three, two or one tokens, the token that
came most often, if it came three times and in two of three cases, and so on. `suffix` is arctic-inference's suffix
decoding with its defaults: a tree of all observed answers and one of the prompt; it goes on learning from the answers
it is measured on, as it does in use.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PEERS = Path(__file__).resolve().parents[2] / ".bench-peers" / "recipes"
MAX_CONTEXT = 64
Pair = tuple[list[int], list[int]]


class PromptLookup:
    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens = list(prompt)
        self._first: dict[tuple[int, ...], int] = {}
        self._noted = 0

    def advance(self, token: int) -> None:
        self._tokens.append(token)

    def propose(self, most: int) -> Sequence[int]:
        tokens = self._tokens
        for end in range(self._noted + 1, len(tokens)):  # what ends before the last token
            for n in (2, 1):
                if end >= n:
                    self._first.setdefault(tuple(tokens[end - n : end]), end)
        self._noted = max(self._noted, len(tokens) - 1)
        for n in (2, 1):
            at = self._first.get(tuple(tokens[-n:]))
            if len(tokens) >= n and at is not None:
                return tokens[at : at + most]
        return ()


class NgramTable:
    LENGTHS, LEAST, SHARE = (3, 2, 1), 3, 2 / 3

    def __init__(self, observed: Sequence[Sequence[int]]) -> None:
        followed: dict[tuple[int, ...], Counter[int]] = {}
        for tokens in observed:
            for i, token in enumerate(tokens):
                for n in self.LENGTHS:
                    if i >= n:
                        followed.setdefault(tuple(tokens[i - n : i]), Counter())[token] += 1
        self.next: dict[tuple[int, ...], int] = {}
        for context, counts in followed.items():
            token, n = min(counts.items(), key=lambda one: (-one[1], one[0]))
            if n >= self.LEAST and n >= self.SHARE * counts.total():
                self.next[context] = token
        self.n_bytes = len(self.next) * (16 + 4 + 8)  # llama.cpp: four ids, a count, an id with its count

    def cursor(self) -> "_NgramCursor":
        return _NgramCursor(self)


class _NgramCursor:
    def __init__(self, table: NgramTable) -> None:
        self._next, self._tokens = table.next, list[int]()

    def advance(self, token: int) -> None:
        self._tokens.append(token)

    def propose(self, most: int) -> Sequence[int]:
        tail, draft = self._tokens[-3:], list[int]()
        while len(draft) < most:
            known = (self._next.get(tuple(tail[-n:])) for n in NgramTable.LENGTHS if len(tail) >= n)
            token = next((one for one in known if one is not None), None)
            if token is None:
                break
            draft.append(token)
            tail.append(token)
        return draft


def has_suffix_decoding() -> bool:
    return (PEERS / "arctic_inference").is_dir()


class SuffixDecoding:
    def __init__(self, observed: Sequence[Pair]) -> None:
        if str(PEERS) not in sys.path:
            sys.path.append(str(PEERS))
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self.cache: Any = SuffixDecodingCache(max_tree_depth=MAX_CONTEXT, max_cached_requests=-1)
        for i, (prompt, answer) in enumerate(observed):
            self.cache.start_request(("observed", i), as_array(prompt))
            self.cache.add_active_response(("observed", i), as_array(answer))
            self.cache.stop_request(("observed", i))

    def proposer(self, prompts: Sequence[Sequence[int]]) -> "Callable[[int], _SuffixCursor]":
        return lambda i: _SuffixCursor(self.cache, i, prompts[i])


class _SuffixCursor:
    """`close` ends the request; its answer stays in the tree."""

    def __init__(self, cache: Any, name: Any, prompt: Sequence[int]) -> None:
        self._cache, self._name = cache, name
        cache.start_request(name, as_array(prompt))
        self._tokens, self._told = list(prompt), len(prompt)

    def advance(self, token: int) -> None:
        self._tokens.append(token)

    def propose(self, most: int) -> Sequence[int]:
        self._tell()
        context = as_array(self._tokens[-MAX_CONTEXT:])
        found = self._cache.speculate(self._name, context, max_spec_tokens=most)
        return list(found.token_ids)

    def close(self) -> None:
        self._tell()
        self._cache.stop_request(self._name)

    def _tell(self) -> None:
        if self._told < len(self._tokens):
            self._cache.add_active_response(self._name, as_array(self._tokens[self._told :]))
            self._told = len(self._tokens)


def as_array(tokens: Sequence[int]) -> Any:
    return np.array(tokens, dtype=np.int32)
