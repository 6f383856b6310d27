"""The form of a candidate input, as a number in [0, 1]: what can be told of a text by itself and beside the task's own
inputs, without asking anybody.

A candidate is an input that a student will get, not an answer. What a teacher writes instead of one is known: a
refusal, an announcement ("Here is a message:"), a numbered or labelled line, an answer to the task (a label's name, a
JSON value that the task's schema allows), one phrase again and again, and a text far shorter or longer than any real
input. Each has a factor, and the form is their product; a text that shows nothing of it has 1. What the task's own
inputs show as well (a list, a label before a colon) counts against nobody.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

SLIP = 0.25  # of a text that is an input with something around it
N_FOR_A_RANGE = 5  # inputs of the task from which on they tell how long one is
WORDS_OF_A_PHRASE = 3
FREE_REPEATS = 0.2  # the share of repeated phrases that says nothing: people repeat themselves
_REFUSAL = re.compile(
    r"\W{0,3}(?:(?:i'?m|i am) (?:sorry|afraid|unable|not able)\b[^.]{0,60}\b(?:can(?:no|')t|cannot|unable|not able)"
    r"|(?:sorry|apologies)\W{1,3}(?:but )?i (?:can(?:no|')t|cannot|am unable)"
    r"|i (?:can(?:no|')t|cannot) (?:assist|help|comply|fulfil|provide|generate|create|write)"
    r"|as an? (?:ai|artificial|large language|language model))",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    r"\W{0,3}(?:(?:sure|certainly|of course|okay|ok|absolutely)\W{1,3})?here(?:'s| is| are) "
    r"(?:a|an|one|the|another|some|your)\b"
    r"[^\n]{0,80}(?:message|input|example|text|request|query|candidate)[^\n]{0,40}:",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\s*(?:\(?\d{1,3}[.)]\s|[-*•]\s|#{1,6}\s|```)")
_LABELLED = re.compile(
    r"\W{0,3}(?:new |example |sample )?(?:message|input|label|slice|candidate|output|answer)\W{0,3}:", re.I
)

_FAULTS = {"refusal": _REFUSAL, "announced": _ANNOUNCED, "numbered": _NUMBERED, "labelled": _LABELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRange:
    """The lengths, in characters, that the task's own inputs have; beyond half the shortest and twice the longest a
    text loses as much as it is too short or too long."""

    least: int = 0
    most: int = 0

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """The range of the middle nine tenths; of fewer than N_FOR_A_RANGE texts none."""
        lengths = sorted(map(len, texts))
        if len(lengths) < N_FOR_A_RANGE:
            return cls()
        cut = len(lengths) // 20
        return cls(least=lengths[cut], most=lengths[-1 - cut])

    def factor(self, n_chars: int) -> float:
        """1 within the range, else the share by which the length misses it.

        >>> LengthRange(least=20, most=100).factor(400)
        0.5
        """
        if self.most == 0 or self.least / 2 <= n_chars <= 2 * self.most:
            return 1.0
        return n_chars / (self.least / 2) if n_chars < self.least / 2 else 2 * self.most / n_chars


@dataclass(frozen=True, slots=True, kw_only=True)
class InputForm:
    """The form that inputs of a task have. `natural` names what the task's own inputs show as well, which therefore
    says nothing against a candidate; `is_answer` says whether a text is an answer to the task."""

    lengths: LengthRange = field(default_factory=LengthRange)
    natural: frozenset[str] = frozenset()
    is_answer: Callable[[str], bool] = lambda text: False

    @classmethod
    def of(cls, texts: Sequence[str], is_answer: Callable[[str], bool] = lambda text: False) -> Self:
        """The form of a task whose own inputs are `texts`."""
        bare = cls(is_answer=is_answer)
        seen = frozenset(name for text in texts for name in bare.faults(text))
        return cls(lengths=LengthRange.of(texts), natural=seen, is_answer=is_answer)

    def faults(self, text: str) -> list[str]:
        """Name what a text shows that is no input."""
        shown = [name for name, pattern in _FAULTS.items() if pattern.match(text)]
        return [name for name in [*shown, *(["answer"] if self.is_answer(text) else [])] if name not in self.natural]

    def score(self, text: str) -> float:
        """The product of the text's factors, in [0, 1].

        >>> InputForm().score("Here is a message: where is my refund?")
        0.25
        """
        faults = self.faults(text)
        if "refusal" in faults or "answer" in faults:
            return 0.0
        repeats = min(1.0, (1.0 - repeated_share(text)) / (1.0 - FREE_REPEATS))
        return round(float(SLIP ** len(faults) * self.lengths.factor(len(text)) * repeats), 6)


def repeated_share(text: str) -> float:
    """The share of a text's phrases of three words that stand in it before; 0 of a text without one.

    >>> repeated_share("no no no no no")
    0.6666666666666666
    """
    words = text.casefold().split()
    phrases = Counter(zip(*(words[i:] for i in range(WORDS_OF_A_PHRASE)), strict=False))
    total = sum(phrases.values())
    return 0.0 if total == 0 else 1.0 - len(phrases) / total
