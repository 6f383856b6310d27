"""Texts of the quality bench: their embeddings, computed once and kept below the temporary folder, and edited variants.

An edit changes how a sentence is put, never what is asked: prefixes, endings, synonyms, contractions and typos.
"""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bench.minilm import minilm

CACHE = Path(tempfile.gettempdir()) / "kolm-selection-quality"
CHUNK = 2048

PREFIXES = (
    "hi, ", "hello, ", "hey, ", "quick question: ", "please help, ", "i was wondering, ", "so, ", "ok, ",
    "excuse me, ", "good morning, ", "one more thing, ", "just asking, ", "urgent: ", "sorry, ",
)  # fmt: skip
ENDINGS = (" thanks", " please", " thank you", " asap", " cheers", " please advise", " any idea", " let me know")
SYNONYMS = (
    ("how do i", "how can i"), ("how can i", "how do i"), ("can i", "is it possible to"), ("can you", "could you"),
    ("could you", "can you"), ("i want to", "i would like to"), ("i need to", "i have to"),
    ("i'd like to", "i want to"),
    ("what is", "what's"), ("what's", "what is"), ("i am", "i'm"), ("i'm", "i am"), ("cannot", "can't"),
    ("can't", "cannot"), ("do not", "don't"), ("don't", "do not"), ("tell me", "let me know"), ("why is", "how come"),
    ("money", "cash"), ("payment", "transaction"), ("transfer", "money transfer"), ("card", "bank card"),
    ("purchase", "payment"), ("get", "obtain"), ("help", "assist"), ("find", "locate"), ("account", "bank account"),
    ("wrong", "incorrect"), ("still", "yet"), ("need", "require"), ("show", "display"), ("make", "do"),
    ("my", "the"), ("give", "provide"), ("see", "notice"), ("look", "check"), ("buy", "purchase"), ("play", "put on"),
)  # fmt: skip


class TextRows:
    """MiniLM rows by text, `(n, 384)` float32 unit rows, in one file of the cache a name."""

    def __init__(self, name: str) -> None:
        self._path = CACHE / f"{name}.npz"
        self._rows: dict[str, NDArray[np.float32]] = {}
        if self._path.exists():
            with np.load(self._path) as kept:
                self._rows = dict(zip(kept["keys"].tolist(), kept["rows"], strict=True))
        self._n_saved = len(self._rows)

    def embed(self, texts: Sequence[str]) -> None:
        """Embed those that are new; the file is written every so often and by `save`."""
        missing = sorted({text for text in texts if _key(text) not in self._rows}, key=lambda t: (len(t), t))
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            self._rows |= dict(zip(map(_key, chunk), minilm().embed(chunk), strict=True))
            if len(self._rows) - self._n_saved >= CHUNK:
                self.save()

    def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._rows[_key(text)] for text in texts])

    def save(self) -> None:
        if len(self._rows) == self._n_saved:
            return
        CACHE.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part.npz")
        np.savez(part, keys=np.array(list(self._rows)), rows=np.stack(list(self._rows.values())))
        part.replace(self._path)
        self._n_saved = len(self._rows)


def _key(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def variants_of(sentence: str, n: int, rng: np.random.Generator) -> list[str]:
    """`n` ways to put one sentence, the first its own."""
    found = [sentence]
    while len(found) < n:
        text = sentence.lower() if rng.random() < 0.5 else sentence
        for _ in range(int(rng.integers(1, 4))):
            text = _edited(text, rng)
        found.append(text)
    return found


def _edited(text: str, rng: np.random.Generator) -> str:
    match int(rng.integers(5)):
        case 0:
            return str(rng.choice(PREFIXES)) + text
        case 1:
            return text.rstrip("?.! ") + str(rng.choice(ENDINGS))
        case 2 | 3:
            return _reworded(text, rng)
        case _:
            return _mistyped(text, rng)


def _reworded(text: str, rng: np.random.Generator) -> str:
    padded = f" {text.lower()} "
    fitting = [(old, new) for old, new in SYNONYMS if f" {old} " in padded]
    if not fitting:
        return text
    old, new = fitting[int(rng.integers(len(fitting)))]
    return padded.replace(f" {old} ", f" {new} ", 1).strip()


def _mistyped(text: str, rng: np.random.Generator) -> str:
    """Two neighbouring letters swapped, one doubled, or one left out, in a word of four letters or more."""
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if len(word) >= 4]
    if not long:
        return text
    at = long[int(rng.integers(len(long)))]
    word, i = words[at], int(rng.integers(1, len(words[at]) - 1))
    words[at] = (
        word[:i] + word[i + 1] + word[i] + word[i + 2 :],
        word[:i] + word[i] + word[i:],
        word[:i] + word[i + 1 :],
    )[int(rng.integers(3))]
    return " ".join(words)
