"""Gold examples: which are held out for the evaluation, and whether anything the trainer sees gives them away.

The split is a function of the salt and the examples alone: not of their order, nor of a clock. It is made over
*groups* (the customer's `group`, joined with "same text after normalisation"), so that a ticket, its reply and its
copy never stand on both sides. An example may name its side: what the customer holds out is held out, and nothing else
then. What is here decides; it does not score (`kscore`) and does not read uploads.
"""

import hashlib
import hmac
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from backend.domain.unicode_forms import unicode_form

SHINGLE = 5  # characters
NEAR_NUM, NEAR_DEN = 4, 5  # near-duplicate: Jaccard of the shingle sets >= 4/5, in integers so that 0.8 is 0.8


class Gold(Protocol):
    """One example with its right answer; `group` names what must stay together, `split` its side ("train", "heldout")
    or none.
    """

    @property
    def input(self) -> str: ...
    @property
    def output(self) -> str: ...
    @property
    def group(self) -> str | None: ...
    @property
    def split(self) -> str | None: ...


E = TypeVar("E", bound=Gold)
TRAIN, HELDOUT = "train", "heldout"
SIDES = {"train": TRAIN, "heldout": HELDOUT, "test": HELDOUT}  # the last as data sets call it
_NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldSplit(Generic[E]):
    """Both sides in salted order. `n_duplicates` counts repeats of one text with one answer: kept once, or the
    interval would be too narrow. `is_named`: the examples themselves say which are held out; `n_left_out` then counts
    those that share a text or a group with one of them, and are on neither side.
    """

    train: tuple[E, ...]
    heldout: tuple[E, ...]
    n_duplicates: int
    n_left_out: int = 0
    is_named: bool = False


def normalise(text: str) -> str:
    """Two texts are the same text when this is equal: NFKC, case-folded, runs of white space as one space, no
    punctuation at either end.

    >>> normalise("  Where is my   REFUND?!")
    'where is my refund'
    """
    folded = " ".join(unicode_form("NFKC", text).casefold().split())
    start, end = 0, len(folded)
    while start < end and _is_edge(folded[start]):
        start += 1
    while end > start and _is_edge(folded[end - 1]):
        end -= 1
    return folded[start:end] or folded


def _is_edge(char: str) -> bool:
    return char == " " or unicodedata.category(char).startswith("P")


def split_gold(examples: Sequence[E], *, salt: bytes, holdout: float, is_stratified: bool = True) -> GoldSplit[E]:
    """Hold out the examples that say so; where none does, at least `holdout` of the distinct examples that name no
    side, whole groups at a time. A group with an example that says "train" stays in `train`.

    Every label with two groups or more is held out at least once; it also stays in `train` unless the share cannot be
    met otherwise (holdout = 1 leaves nothing to train on). A label with one group stays in `train` unless the share
    needs it. Where groups mix labels the two sides can be impossible to satisfy at once; then being held out wins.
    Answers that are not labels (json, text) are all one stratum: `is_stratified` is False for them.
    """
    sides = _sides(examples)
    usable = [i for i, side in enumerate(sides) if side != _NEITHER]
    groups = _groups([examples[i] for i in usable], salt)
    groups = [[usable[i] for i in members] for members in groups]
    order = [i for members in groups for i in members]
    is_named = HELDOUT in sides
    if is_named:
        held = {i for i in order if sides[i] == HELDOUT}
    else:
        labels_of = [Counter(examples[i].output if is_stratified else "" for i in members) for members in groups]
        trained = {g for g, members in enumerate(groups) if sides[members[0]] == TRAIN}
        held = _choose_heldout(groups, labels_of, holdout, trained)
    return GoldSplit(
        train=tuple(examples[i] for i in order if i not in held),
        heldout=tuple(examples[i] for i in order if i in held),
        n_duplicates=len(usable) - len(order),
        n_left_out=len(examples) - len(usable),
        is_named=is_named,
    )


def _sides(examples: Sequence[Gold]) -> list[str | None]:
    """The side of each example that the examples decide by themselves: None is free. Beside one that is held out, all
    that share its text or group and do not say so are on neither.
    """
    if all(example.split is None for example in examples):
        return [None] * len(examples)
    roots = _roots(examples, [normalise(example.input) for example in examples])
    held = {root for root, example in zip(roots, examples, strict=True) if example.split == HELDOUT}
    if held:
        beside = [_NEITHER if root in held else TRAIN for root in roots]
        return [HELDOUT if example.split == HELDOUT else side for example, side in zip(examples, beside, strict=True)]
    trained = {root for root, example in zip(roots, examples, strict=True) if example.split == TRAIN}
    return [TRAIN if root in trained else None for root in roots]


def n_heldout_at_least(examples: Sequence[Gold], *, holdout: float) -> int:
    """A lower bound on the size of the held-out side, whatever the salt: what a spec can be judged by before it costs
    anything.
    """
    sides = _sides(examples)
    side = HELDOUT if HELDOUT in sides else None
    n = len({_identity(example) for example, its in zip(examples, sides, strict=True) if its == side})
    return n if side == HELDOUT else math.ceil(_exact(holdout, n))


def more_heldout(examples: Iterable[Gold]) -> str:
    """Tell what to do where fewer of the examples are held out than the gate needs."""
    sides = {example.split for example in examples}
    if HELDOUT in sides:
        return 'add gold examples with "split": "heldout", or lower gate.min_heldout'
    kind = ' that do not say "split": "train"' if TRAIN in sides else ""
    return f"add gold examples{kind}, raise examples.holdout, or lower gate.min_heldout"


def _exact(share: float, n: int) -> float:
    # 0.07 * 100 is 7.000000000000001 in binary: without the rounding its ceiling would be 8
    return round(share * n, 9)


def _identity(example: Gold) -> tuple[str, str]:
    return normalise(example.input), example.output


def _groups(examples: Sequence[Gold], salt: bytes) -> list[list[int]]:
    """Indices joined by equal `group` or equal text, each distinct example once; groups, and members of one, in
    salted order.
    """
    texts = [normalise(example.input) for example in examples]
    roots = _roots(examples, texts)
    members: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
    # a repeat meets its twin here, whatever the two groups were called; the smallest raw text stands for both
    for i in sorted(range(len(examples)), key=lambda i: (examples[i].input, examples[i].group or ""), reverse=True):
        members[roots[i]][_salt(salt, texts[i], examples[i].output)] = i
    # ordered by a hash of all members: by the smallest member's, big groups would come first more often than their
    # share
    by_hash = {_salt(salt, *(d.hex() for d in sorted(group))): group for group in members.values()}
    return [[group[d] for d in sorted(group)] for _, group in sorted(by_hash.items(), key=lambda item: item[0])]


def _roots(examples: Sequence[Gold], texts: Sequence[str]) -> list[int]:
    """A number per example that those joined to it by equal `group` or equal text have too; `texts` are normalised."""
    parent = list(range(len(examples)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[tuple[str, str], int] = {}
    for i, example in enumerate(examples):
        for key in (("text", texts[i]), ("group", example.group)):
            if key[1] is not None:
                parent[root(i)] = root(first.setdefault((key[0], key[1]), i))
    return [root(i) for i in range(len(examples))]


def _salt(salt: bytes, *parts: str) -> bytes:
    return hmac.new(salt, "\0".join(parts).encode(), hashlib.sha256).digest()


def _choose_heldout(
    groups: list[list[int]], labels_of: list[Counter[str]], holdout: float, trained: set[int]
) -> set[int]:
    """The examples to hold out, of the groups that are not `trained` whatever comes."""
    choice = [g for g in range(len(groups)) if g not in trained]
    total: Counter[str] = Counter()
    groups_of: defaultdict[str, list[int]] = defaultdict(list)
    for g in choice:
        total.update(labels_of[g])
        for label in labels_of[g]:
            groups_of[label].append(g)
    n_groups = Counter(label for labels in labels_of for label in labels)
    taken: set[int] = set()
    held: Counter[str] = Counter()
    free = n_groups.copy()  # groups of a label still in train

    def take(g: int) -> None:
        taken.add(g)
        held.update(labels_of[g])
        free.subtract(labels_of[g].keys())

    def harm(g: int) -> int:
        """0: all labels of the group stay in train; 1: one that never had another group leaves it; 2: one that had."""
        return max((1 if n_groups[label] == 1 else 2) if free[label] == 1 else 0 for label in labels_of[g])

    for label in sorted(groups_of, key=lambda name: (n_groups[name], name)):
        mine = groups_of[label]
        if n_groups[label] >= 2 and not held[label]:
            take(min(mine, key=harm))
        for g in mine:
            if g not in taken and not harm(g) and held[label] < _exact(holdout, total[label]):
                take(g)
    wanted, n_held = _exact(holdout, total.total()), held.total()
    for tolerated in (0, 1, 2):
        for g in choice:
            if g not in taken and n_held < wanted and harm(g) <= tolerated:
                take(g)
                n_held += labels_of[g].total()
    return {i for g in taken for i in groups[g]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Training text `train` gives away held-out text `heldout` (indices); `similarity_ppm` is the shingle Jaccard,
    1,000,000 when exact.
    """

    train: int
    heldout: int
    similarity_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakageReport:
    """The leaks, at most one per training text, the closest; `exact` before `near`. `n_heldout_touched` counts held-out
    texts given away.
    """

    n_train: int
    n_heldout: int
    exact: tuple[Leak, ...]
    near: tuple[Leak, ...]
    is_partial: bool = False  # the near ones were looked for as long as `most_pairs` allowed

    @property
    def n_heldout_touched(self) -> int:
        return len({leak.heldout for leak in self.exact + self.near})

    def to_json(self) -> dict[str, int]:
        return {
            "n_train": self.n_train,
            "n_heldout": self.n_heldout,
            "n_exact": len(self.exact),
            "n_near": len(self.near),
            "n_heldout_touched": self.n_heldout_touched,
        }


def leakage(
    train_texts: Sequence[str], heldout_texts: Sequence[str], *, most_pairs: int | None = None
) -> LeakageReport:
    """Exact: equal after `normalise`. Near: Jaccard of the sets of character 5-grams >= 0.8.

    All pairs, exactly, by prefix filtering (Bayardo et al. 2007): two sets can only be that close if they share one
    of their rarest few members, so only those are indexed. 10,003 against 3,080 BANKING77 questions take 0.6 s;
    no pair is missed, so no MinHash. Texts that are made for it share every shingle, and then all pairs are compared
    (4,000 against 4,000: 80 s): `most_pairs` ends the search for near ones after that many.
    """
    held_norm = [normalise(text) for text in heldout_texts]
    train_norm = [normalise(text) for text in train_texts]
    held_at: dict[str, int] = {}
    for j, text in enumerate(held_norm):
        held_at.setdefault(text, j)
    rank = _rarity(held_norm)
    held_sets = [_shingles(text) for text in held_norm]
    index: defaultdict[str, list[int]] = defaultdict(list)
    for j, grams in enumerate(held_sets):
        for gram in _prefix(grams, rank):
            index[gram].append(j)
    exact, near, left = [], [], math.inf if most_pairs is None else most_pairs
    for i, text in enumerate(train_norm):
        if text in held_at:
            exact.append(Leak(train=i, heldout=held_at[text], similarity_ppm=1_000_000))
        elif left > 0:
            grams = _shingles(text)
            candidates = {j for gram in _prefix(grams, rank) for j in index.get(gram, ())}
            left -= len(candidates)
            if (leak := _nearest(i, grams, candidates, held_sets)) is not None:
                near.append(leak)
    return LeakageReport(
        n_train=len(train_norm),
        n_heldout=len(held_norm),
        exact=tuple(exact),
        near=tuple(near),
        is_partial=left <= 0,
    )


def drop_leaks(training_texts: Sequence[str], heldout_texts: Sequence[str]) -> tuple[int, ...]:
    """Indices of the training texts that give no held-out text away, in order."""
    report = leakage(training_texts, heldout_texts)
    leaked = {leak.train for leak in report.exact + report.near}
    return tuple(i for i in range(len(training_texts)) if i not in leaked)


def _shingles(text: str) -> frozenset[str]:
    """Character 5-grams; a text of fewer characters is its own single shingle."""
    return frozenset(text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1)))


def _rarity(texts: Sequence[str]) -> dict[str, int]:
    return Counter(gram for text in texts for gram in _shingles(text))


def _prefix(grams: frozenset[str], rank: dict[str, int]) -> list[str]:
    """The |x| - ceil(0.8 |x|) + 1 rarest shingles (unseen ones are rarest; ties by text)."""
    n = len(grams) - -(-NEAR_NUM * len(grams) // NEAR_DEN) + 1
    return sorted(grams, key=lambda gram: (rank.get(gram, 0), gram))[:n]


def _nearest(i: int, grams: frozenset[str], candidates: set[int], held: Sequence[frozenset[str]]) -> Leak | None:
    best: tuple[int, int] | None = None
    for j in candidates:
        shared = len(grams & held[j])
        union = len(grams) + len(held[j]) - shared
        if NEAR_DEN * shared >= NEAR_NUM * union:
            likeness = (1_000_000 * shared // union, -j)
            best = likeness if best is None else max(best, likeness)
    return None if best is None else Leak(train=i, heldout=-best[1], similarity_ppm=best[0])
