"""Patterns as a stranger may write them, for hypothesis: `meaningful` ones, small, to be compared with Python's `re`,
and `hostile` ones, as large and as nested as can be."""

from hypothesis import strategies as st

# letters with a case in more than one way, spaces, digits and words of several scripts, halves of pairs, new lines
CHARACTERS = (
    "abAB1_ -\n\tkKsSiI"
    "\u0131\u0130\u212a\u017f\u00df\u1e9eéÉσςΣдД中٣\u00a0\u2028\ud800𐐀𐐨ﬅﬆ\u0390\u1fd3µμ\r\x1c²ᾳᾼ\0\x85"
)
FLAGS = ("", "", "", "(?i)", "(?m)", "(?s)", "(?x)", "(?im)", "(?a)", "(?ai)")
_SIGNS = frozenset("\\^$.|?*+()[]{}-&~# \t\n\r")
_CATEGORIES = st.sampled_from([r"\d", r"\w", r"\s", r"\D", r"\W", r"\S"])
_PLACES = st.sampled_from([r"\b", r"\B", "^", "$", r"\A", r"\Z"])
_ODD = st.sampled_from(
    [r"\x41", r"\u0131", r"\101", r"\0", r"\N{KELVIN SIGN}", "{", "}", "x{,", "a{1", "-", "]", "[]a]", "[^]-]"]
)
_REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{,2}", "{1,2}", "{0,3}?", "{2,}", "{,}", "{1}"]
# (?a:\W) is left out: Python's own search takes no é for it, and its match does
_OPENINGS = ["(", "(?:", "(?i:", "(?-i:", "(?s:", "(?m:", "(?x:", "(?i-s:", "(?#note)(", "(?#\\))(", "(?x:#\\\n)\n"]


def _spelt(char: str) -> str:
    return "\\" + char if char in _SIGNS else char


_letters = st.sampled_from(CHARACTERS).map(_spelt)
_ranges = st.lists(st.sampled_from(CHARACTERS), min_size=2, max_size=2).map(
    lambda two: "-".join(map(_spelt, sorted(two)))
)
_sets = st.builds(
    lambda sign, items: f"[{sign}{''.join(items)}]",
    st.sampled_from(["", "^"]),
    st.lists(st.one_of(_letters, _ranges, _CATEGORIES), min_size=1, max_size=3),
)
_atoms = st.one_of(_letters, _letters, _CATEGORIES, st.just("."), _sets, _PLACES, _ODD)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds(lambda opening, text: f"{opening}{text})", st.sampled_from(_OPENINGS), inner)
    repeated = st.builds("{}{}".format, st.one_of(groups, _letters, _sets, st.just(".")), st.sampled_from(_REPEATS))
    rows = st.lists(st.one_of(inner, repeated), max_size=4).map("".join)
    return st.one_of(groups, repeated, rows, st.lists(rows, min_size=2, max_size=3).map("|".join))


meaningful = st.builds("{}{}".format, st.sampled_from(FLAGS), st.recursive(_atoms, _larger, max_leaves=10))
short_texts = st.one_of(
    st.text(st.sampled_from(CHARACTERS), max_size=6), st.text(st.sampled_from("abAB1 \n"), max_size=6)
)

_bodies = [
    "a",
    "b",
    "[ab]",
    ".",
    r"\w",
    r"\W?",
    "a?",
    "b*",
    "ab?",
    "(?:a|ab)",
    "(?:a|b|ab)",
    "[^c]",
    "é?",
    "i",
    "ix|ıx",
    r"\b",
    "a|",
    "ſ",
    "(?i:K)",
]
_wide = "".join(chr(0x4E00 + i) for i in range(200))  # so many letters that a symbol takes two bytes


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    count = st.one_of(
        st.sampled_from(["*", "+", "?", "{2,}"]),
        st.integers(1, 1000).map("{{{}}}".format),
        st.integers(1, 1000).map("{{,{}}}".format),
    )
    repeated = st.builds("(?:{}){}".format, inner, count)
    return st.one_of(
        repeated,
        repeated,
        st.lists(inner, min_size=2, max_size=5).map("".join),
        st.builds("{}|{}".format, inner, inner),
    )


hostile = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "(?i)", "(?m)", "(?i)^", "^"]),
    st.recursive(st.sampled_from(_bodies), _nested, max_leaves=12),
    st.sampled_from(["", "", _wide, "|" + _wide]),
    st.sampled_from(["", "c", "$", r"\Z", "[^ab]", r"\b!"]),
)
