"""Mistyped words as rules of a grammar: what a text becomes that is typed in haste, with the probability of each slip.

A literal under the filter `sloppy` is cut into words and gaps. A word of MIN_WORD letters or more is mistyped with the
probability WORD_SLIP: a letter dropped, doubled, or swapped with the next, each place equally likely, the first letter
left alone. A gap between two words is left out with the probability GAP_SLIP. So the result is a grammar still, and
its log-probs stay exact. Words for numbers stay whole: whoever reads a count has to be able to.
"""

import re
from collections.abc import Mapping

from workers.teachers.grammar.number_words import NUMBER_WORDS
from workers.teachers.grammar.pcfg import Alternative, Part, Ref

MIN_WORD = 4
WORD_SLIP = 0.07
GAP_SLIP = 0.01
_PIECE = re.compile(r"[^\W\d_]+|(?<=[^\W\d_])(?P<gap> )(?=[^\W\d_])|.", re.DOTALL)


def sloppy_parts(text: str, into: dict[str, tuple[Alternative, ...]]) -> tuple[Part, ...]:
    """`text` as parts that may be mistyped; the rules that they refer to are written into `into`."""
    parts: list[Part] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        slips = {"": GAP_SLIP} if match["gap"] else _slips(piece)
        if slips:
            name = f"typed {piece}"
            into[name] = _alternatives(piece, slips)
            parts.append(Ref(name))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    return tuple(parts)


def _alternatives(piece: str, slips: Mapping[str, float]) -> tuple[Alternative, ...]:
    total = sum(slips.values())
    rows = [Alternative(1 - total, (piece,))]
    return (*rows, *(Alternative(weight, (text,) if text else ()) for text, weight in slips.items()))


def _slips(piece: str) -> dict[str, float]:
    """{what is typed instead: probability}; nothing for what is always typed right."""
    if len(piece) < MIN_WORD or not piece.isalpha() or piece.casefold() in NUMBER_WORDS:
        return {}
    wrong = [piece[:at] + piece[at + 1 :] for at in range(1, len(piece))]
    wrong += [piece[:at] + piece[at] + piece[at:] for at in range(1, len(piece))]
    wrong += [piece[:at] + piece[at + 1] + piece[at] + piece[at + 2 :] for at in range(1, len(piece) - 1)]
    kinds = dict.fromkeys(text for text in wrong if text != piece)
    return {text: WORD_SLIP / len(kinds) for text in kinds}
