"""The spellings in which labels are compared with what a teacher wrote.

Marks are left out, for teachers put labels in bold, in quotes, at the end of a sentence. Labels that are alike without
them (`A` and `A*`, `C` and `C#`, `1` and `-1`, `yes` and `yes.`) are twins: one is read only where it stands exactly,
but for case and for marks on both of its sides. There a stand-in, a word that no answer has, takes its place before any
mark is left out; where it may be either, UNSURE does. A full stop in a sentence may be the sentence's: `yes.` is read
as a line or a value of its own.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from backend.domain.unicode_forms import unicode_form
from workers.teachers.prompts.label_words import EDGES, LINE_MARK

WORD = r"[^\W\u2e80-\u9fff\uac00-\ud7af]"  # a character of a script that parts words by spaces
_MARKS = "[*_`\"'#]"  # what may stand on both sides of a label
_BEFORE, _AFTER = rf"(?<!{WORD})(?<!\w-)(?<!\d[.,])", rf"(?!{WORD}|-\w|[.,]\d)"
_ENDS = ".,;:!?"
_ESCAPED = re.compile(r"\\([_*-])")
_WRAPPED = re.compile(rf"({_MARKS}{{1,3}})(.+)\1")
_WORD_STAND_IN, _NUMBER_STAND_IN = "\U00010330", "\U0001d7ce"  # their alphabets: Gothic and bold digits
UNSURE = _WORD_STAND_IN * 2


def loose(text: str) -> str:
    """Return the text without marks at its ends, in lower case, words joined by "_"."""
    return re.sub(r"[\s_-]+", "_", unicode_form("NFC", text).strip(EDGES)).casefold()


def without_marks(text: str) -> str:
    """Return the text without emphasis, quotation marks and code fences: marks that few labels need to be
    recognised."""
    text = _ESCAPED.sub(r"\1", text)
    text = re.sub(r"```\w*|[*`\"“”„«»「」]", "", text)
    return re.sub(r"(?<!\w)['‘’_]+|['‘’_]+(?!\w)", "", text)


def words_of(text: str) -> str:
    """Return the pattern of a loose spelling, however its words are joined."""
    return r"[\s_-]+".join(map(re.escape, text.split("_")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spellings:
    """A set of labels as the reader compares them: `names` holds for each label itself without marks, or its stand-in;
    and UNSURE, where there are twins."""

    names: tuple[str, ...]
    labels: Mapping[str, str]  # by name
    exact: Mapping[str, str]  # stand-ins by label
    folded: Mapping[str, str]  # stand-ins by label in lower case; UNSURE where that is two labels'
    alike: frozenset[str]  # the loose spellings of two
    exactly: re.Pattern[str] | None  # a label, longest first; None without twins
    loosely: re.Pattern[str] | None

    def label(self, name: str | None) -> str | None:
        """Return the label that has this name; None for None and UNSURE."""
        return None if name is None else self.labels.get(name)

    def plain(self, text: str) -> str:
        """Return the text without marks, with stand-ins in it."""
        if self.exactly is None:
            return without_marks(text)
        text = re.sub(f"[{_WORD_STAND_IN}{_NUMBER_STAND_IN}]", "", unicode_form("NFC", text))
        return without_marks("\n".join(map(self._line, _ESCAPED.sub(r"\1", text).split("\n"))))

    def _line(self, line: str) -> str:
        if self.exactly is None or self.loosely is None or (whole := self._name(line.strip())):
            return whole or line
        mark = LINE_MARK.match(line)
        before, rest = (mark[0], line[mark.end() :]) if mark else ("", line)
        wrapped = _WRAPPED.fullmatch(rest.strip())
        if wrapped is not None and wrapped[1] not in wrapped[2] and not self._name(rest.strip()):
            rest = wrapped[2]
        whole = self._name(rest.strip())
        return before + (whole or self.loosely.sub(self._unsure, self.exactly.sub(self._stand_in, rest)))

    def _name(self, written: str) -> str | None:
        return self.exact.get(written) or self.folded.get(written.casefold())

    def _stand_in(self, match: re.Match[str]) -> str:
        marks, name = match["marks"], self._name(match["label"])
        may_end_sentence = not marks and self._name(match["label"].rstrip(_ENDS)) not in (name, None)
        return match[0] if name is None or may_end_sentence else f"{marks}{name}{marks}"

    def _unsure(self, match: re.Match[str]) -> str:
        return UNSURE if loose(match[0]) in self.alike else match[0]


@lru_cache(maxsize=64)
def spellings(labels: tuple[str, ...]) -> Spellings:
    """Return the spellings of a set of labels."""
    alike: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        alike[loose(without_marks(label))].append(label)
    twins = [label for key, group in alike.items() if len(group) > 1 or not key for label in group]
    exact = {unicode_form("NFC", label): _stand_in(i, label) for i, label in enumerate(twins)}
    n_folded = Counter(label.casefold() for label in exact)
    names = [exact[unicode_form("NFC", label)] if label in twins else without_marks(label) for label in labels]
    any_label = "|".join(words_of(key) for key in sorted(alike, key=len, reverse=True) if key) or "(?!)"
    return Spellings(
        names=(*names, UNSURE) if twins else tuple(names),
        labels=dict(zip(names, labels, strict=True)),
        exact=exact,
        folded={label.casefold(): name if n_folded[label.casefold()] == 1 else UNSURE for label, name in exact.items()},
        alike=frozenset(loose(without_marks(label)) for label in twins),
        exactly=_exact_pattern(exact, [label for label in labels if label not in twins]) if twins else None,
        loosely=re.compile(rf"{_BEFORE}(?:{any_label}){_AFTER}", re.IGNORECASE) if twins else None,
    )


def _stand_in(i: int, label: str) -> str:
    """A number's is one, for a number at the beginning of a line counts for less."""
    first = _NUMBER_STAND_IN if label.isdigit() else _WORD_STAND_IN
    return first + "".join(chr(ord(first) + 1 + int(digit)) for digit in f"{i:o}")


def _exact_pattern(twins: Iterable[str], others: Iterable[str]) -> re.Pattern[str]:
    """The twins that have a word in them, and the other labels however they are joined: one may begin with a twin."""
    parts = {label: re.escape(label) for label in twins if re.search(r"\w", label)}
    parts |= {key: words_of(key) for key in map(loose, others) if key}
    any_label = "|".join(parts[key] for key in sorted(parts, key=len, reverse=True)) or "(?!)"
    return re.compile(
        rf"(?<!{_MARKS}){_BEFORE}(?P<marks>{_MARKS}{{0,3}}?)(?P<label>{any_label})(?P=marks)(?!{_MARKS}){_AFTER}",
        re.IGNORECASE,
    )
