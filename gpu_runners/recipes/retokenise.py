"""A pack in the tokens of another engine: the same texts, other ids.

Where a text is cut into tokens depends on what stands around it, and a recipe does not know that. Cut by itself, a text
that gives as many tokens as the recipe has is taken as it is: another engine's ids of the same tokens. Else it is cut
behind several other characters, and most of them decide; of its end only those tokens are kept that are the same before
all of them. A `run` then may begin a little earlier or end a little sooner than it did.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from backend.domain.recipes.copies import Copy, Frame
from backend.domain.recipes.pack import BEGIN, MAX_AFTER, MAX_DRAFT, Recipe, RecipePack

_SURROUNDINGS = ("", "a", "1", " ", '"', "}", "\n")


class Piece(NamedTuple):
    """A token and the bytes of the recipe's text that it stands for."""

    begin: int
    end: int
    token: int


def retokenised(
    pack: RecipePack,
    encode: Callable[[str], Sequence[int]],
    token_texts: Sequence[bytes],
    *,
    tokenizer_sha256: str,
    base: str,
    end_ids: Collection[int] = (),
    end_id: int | None = None,
    frame: Frame | None = None,
) -> RecipePack:
    """`encode` cuts a plain text without adding tokens of its own; `token_texts` are the new tokens' bytes. `end_ids`
    end an answer in the old tokens, `end_id` in the new ones; `frame`: the new tokens around an input, without which
    copy recipes are left out. Counts stay: they are of the texts."""
    found: dict[tuple[tuple[int, ...], str], Recipe] = {}
    for recipe in pack.recipes:
        new = _recipe(recipe, encode, token_texts, is_end=recipe.run[-1] in end_ids, end_id=end_id)
        if new is not None and (new.place not in found or found[new.place].agreed < new.agreed):
            found[new.place] = new
    stats = pack.stats | {"before_retokenising": len(pack.recipes)}
    copies = [] if frame is None else list(_copies(pack, encode, token_texts, end_ids=end_ids, end_id=end_id))
    return replace(
        pack,
        tokenizer_sha256=tokenizer_sha256,
        base=base,
        recipes=tuple(found.values()),
        stats=stats,
        copies=tuple(copies),
        frame=frame if frame is not None and copies else ((), ()),
    )


def _copies(
    pack: RecipePack,
    encode: Callable[[str], Sequence[int]],
    texts: Sequence[bytes],
    *,
    end_ids: Collection[int],
    end_id: int | None,
) -> Iterator[Copy]:
    """Cues are texts of the input, whatever the tokens; what is said is cut like a shape's run."""
    for one in pack.copies:
        if not one.run:
            yield one
            continue
        said = Recipe(
            after=(),
            shape=one.place,
            run=one.run,
            after_text="",
            run_text=one.run_text,
            support=one.support,
            agreed=one.agreed,
        )
        new = _recipe(said, encode, texts, is_end=one.run[-1] in end_ids, end_id=end_id)
        if new is not None:
            yield replace(one, run=new.run, run_text=new.run_text)


def _recipe(
    recipe: Recipe,
    encode: Callable[[str], Sequence[int]],
    texts: Sequence[bytes],
    *,
    is_end: bool,
    end_id: int | None,
) -> Recipe | None:
    is_begin = recipe.after[:1] == (BEGIN,)
    whole = (recipe.after_text + recipe.run_text).encode()
    split = len(recipe.after_text.encode())

    def cut(before: str, after: str) -> list[Piece]:
        return _cut(before, whole.decode(), after, encode, texts)

    pieces = cut("", "")
    if _sizes(pieces, split) != (len(recipe.after) - is_begin, len(recipe.run) - is_end):
        pieces = _settled(cut, is_begin=is_begin, is_end=is_end)
    after, run = [p for p in pieces if p.end <= split], [p for p in pieces if p.end > split]
    said = [piece.token for piece in run]
    if is_end and end_id is not None and (pieces[-1].end if pieces else 0) == len(whole):
        said.append(end_id)
    ids = [piece.token for piece in after[-MAX_AFTER:]]
    if is_begin and len(ids) < MAX_AFTER:
        ids.insert(0, BEGIN)
    if not said or (recipe.after and not ids):
        return None
    after_text, run_text = _text(whole, after[-MAX_AFTER:]), _text(whole, run[:MAX_DRAFT])
    if after_text is None or run_text is None:
        return None
    return replace(recipe, after=tuple(ids), run=tuple(said[:MAX_DRAFT]), after_text=after_text, run_text=run_text)


def _sizes(pieces: Sequence[Piece], split: int) -> tuple[int, int]:
    """Of context and run; (-1, -1) where a piece crosses the place between them."""
    if split and split not in {piece.end for piece in pieces}:
        return -1, -1
    n = sum(piece.end <= split for piece in pieces)
    return n, len(pieces) - n


def _settled(cut: Callable[[str, str], list[Piece]], *, is_begin: bool, is_end: bool) -> list[Piece]:
    """From the text's first byte, as most surroundings have it, to where all still agree. [] for none."""
    cuts = {before: tuple(cut(before, "")) for before in (("",) if is_begin else _SURROUNDINGS)}
    votes = Counter(pieces for pieces in cuts.values() if pieces and not pieces[0].begin)
    if not votes:
        return []
    chosen = votes.most_common(1)[0][0]
    before = next(before for before, pieces in cuts.items() if pieces == chosen)
    settled = set(chosen)
    for after in () if is_end else _SURROUNDINGS:
        settled &= set(cut(before, after))
    return list(itertools.takewhile(settled.__contains__, chosen))


def _cut(
    before: str, text: str, after: str, encode: Callable[[str], Sequence[int]], texts: Sequence[bytes]
) -> list[Piece]:
    """The tokens of `text` between the two others, without those that cross into them. [] where the tokens are not the
    text's: an engine that writes a space before every text is understood, one that rewrites it is not."""
    data = (before + text + after).encode()
    ids = encode(before + text + after)
    said = b"".join(texts[token] for token in ids)
    if said not in (data, b" " + data):
        return []
    at = len(data) - len(said) - len(before.encode())
    pieces = []
    for token in ids:
        begin, at = at, at + len(texts[token])
        if begin >= 0 and at <= len(text.encode()) and begin < at:
            pieces.append(Piece(begin, at, token))
    return pieces


def _text(whole: bytes, pieces: Sequence[Piece]) -> str | None:
    """None where a character is cut."""
    try:
        return whole[pieces[0].begin : pieces[-1].end].decode() if pieces else ""
    except UnicodeDecodeError:
        return None
