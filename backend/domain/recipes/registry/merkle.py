"""Merkle trees as RFC 9162 (section 2.1) draws them: a root over a list of byte strings, and proofs that one is in it.

Leaves and nodes are hashed apart (0x00 and 0x01 before them), so that no node can be shown as a leaf.
"""

import hashlib
from collections.abc import Sequence

MAX_PATH = 64


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + data).digest()


def merkle_root(hashes: Sequence[bytes]) -> bytes:
    """Compute the root of leaf hashes, 32 bytes; of none: sha256 of nothing."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    cut = _cut(len(hashes))
    return _node(merkle_root(hashes[:cut]), merkle_root(hashes[cut:]))


def merkle_path(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Return what is needed beside leaf `index` to come to the root, lowest first. Raises IndexError."""
    if not 0 <= index < len(hashes):
        raise IndexError(f"There is no leaf {index} among {len(hashes)}.")
    if len(hashes) == 1:
        return []
    cut = _cut(len(hashes))
    if index < cut:
        return [*merkle_path(hashes[:cut], index), merkle_root(hashes[cut:])]
    return [*merkle_path(hashes[cut:], index - cut), merkle_root(hashes[:cut])]


def root_of_path(leaf: bytes, index: int, n_leaves: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a leaf hash at `index` of `n_leaves` leads to by `path`; None where the path has another length
    than the place asks for."""
    if not 0 <= index < n_leaves or len(path) > MAX_PATH:
        return None
    if n_leaves == 1:
        return leaf if not path else None
    if not path:
        return None
    cut = _cut(n_leaves)
    if index < cut:
        left = root_of_path(leaf, index, cut, path[:-1])
        return None if left is None else _node(left, path[-1])
    right = root_of_path(leaf, index - cut, n_leaves - cut, path[:-1])
    return None if right is None else _node(path[-1], right)


def _cut(n: int) -> int:
    """The largest power of two below n."""
    return 1 << (n - 1).bit_length() - 1


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
