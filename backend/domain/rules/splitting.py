"""The split into pairs that propose rules and pairs that judge them. What a teacher made from one seed text comes in
variants; a variant on the other side would vouch for the rule that it made.
"""

import hashlib
from collections.abc import Sequence

from backend.domain.answers.candidates import text_key
from backend.domain.canonical import sha256_hex
from backend.domain.rules.wording import word_bytes

_PRIME = 2**89 - 1
_FACTOR = 1_000_003
MIN_WORDS = 5  # of shorter texts only equal ones are near: "play jazz" is no variant of "play chess"


def halves(texts: Sequence[str], *, heldout_share: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices of those that propose and of those that are held out, each in the order of the texts' names. Texts of the
    same words, or that differ in one word (another, one more, one less), are on one side, and so are theirs.

    The groups come in the order of a hash; one goes to the held-out side while that has room for all of it. O(words of
    all texts)."""
    order = sorted(range(len(texts)), key=lambda at: (text_key(texts[at]), texts[at]))
    groups: dict[int, list[int]] = {}
    root = _near(texts, order)
    for at in order:
        groups.setdefault(root[at], []).append(at)
    room = int(len(texts) * heldout_share)
    proposing: list[int] = []
    heldout: list[int] = []
    for members in sorted(groups.values(), key=lambda members: _turn(texts[members[0]], seed)):
        side = heldout if len(heldout) + len(members) <= room else proposing
        side += members
    rank = {at: i for i, at in enumerate(order)}
    return sorted(proposing, key=rank.__getitem__), sorted(heldout, key=rank.__getitem__)


def _turn(text: str, seed: int) -> str:
    return sha256_hex(f"{seed} {text_key(text)}".encode())


def _near(texts: Sequence[str], order: Sequence[int]) -> list[int]:
    """A representative for each text (union by what two texts have in common when a word is left out)."""
    root = list(range(len(texts)))

    def find(at: int) -> int:
        while root[at] != at:
            root[at] = root[root[at]]
            at = root[at]
        return at

    met: dict[tuple[int, int], int] = {}
    for at in order:
        for key in _keys(word_bytes(texts[at])):
            other = met.setdefault(key, at)
            root[find(at)] = find(other)
    return [find(at) for at in range(len(texts))]


def _keys(words: Sequence[bytes]) -> list[tuple[int, int]]:
    """Length and hash of the words, and of what is left without each of them: a polynomial in a fixed number, so that
    all of them together cost as much as one. Any word of digits counts as any other."""
    whole, n_words = 0, len(words)
    befores = [0]
    power = 1
    for word in words:
        whole = (whole + _number(b"#" if word.isdigit() else word) * power) % _PRIME
        befores.append(whole)
        power = power * _FACTOR % _PRIME
    keys = [(n_words, whole)]
    if n_words >= MIN_WORDS:
        inverse = pow(_FACTOR, -1, _PRIME)
        keys += [(n_words - 1, (befores[at] + (whole - befores[at + 1]) * inverse) % _PRIME) for at in range(n_words)]
    return keys


def _number(word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "big")
