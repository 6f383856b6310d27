"""A soft label from one answer: the log-probabilities that a teacher gave its tokens, as those of the labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

LEAST_MASS = 0.8  # of the probability that must be the labels'
LEAST = math.log(1e-9)  # the log-probability of a label that no alternative leads to
MOST_MASS = 1.05  # of log-probs that were rounded
MAX_RECORDED = 2_000  # labels of one recorded answer
DIGITS = 4  # of a score that is stored
EDGES = " \t\r\n\"'`*.:"  # marks that may stand around a label
# tokens that end an answer; "" is one where a server leaves out special tokens
ENDS = frozenset(
    (
        *("", "</s>", "<eos>", "<end_of_turn>", "<|im_end|>", "<|end|>", "<|eot_id|>", "<|eot|>", "<|eom_id|>"),
        *("<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>", "<|return|>", "[EOS]"),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",  # DeepSeek's
    )
)


def label_logprobs(
    tokens: Sequence[str], top: Sequence[Mapping[str, float]], labels: Sequence[str]
) -> dict[str, float] | None:
    """Return the log-probability of each label by an answer that is a label alone, or None where less than LEAST_MASS
    of the probability is theirs: where the answer is a sentence, or too few alternatives came with it. None too where
    the answer is a label that another begins with, and no place after it says how likely the other was.

    `tokens` are the answer's; `top[i]` the log-probabilities of the alternatives at token i, itself among them. Labels
    may begin alike: the walk follows the answer until one label is left, and at each place the probability of an
    alternative goes to the labels that begin with the text so far and it, in equal parts where there are several. That
    of an end (ENDS) goes to the label that the text so far is.

    >>> scores = label_logprobs(["re", "fund"], [{"re": -0.1, "ex": -2.4}, {"fund": 0.0}], ["refund", "exchange"])
    >>> {label: round(math.exp(score), 2) for label, score in scores.items()}
    {'refund': 0.91, 'exchange': 0.09}
    """
    names = _Names.of(labels)
    mass = dict.fromkeys(labels, 0.0)
    text, token, path, is_ended = "", "", 0.0, False
    for i, (token, alternatives) in enumerate(zip(tokens, top, strict=False)):
        for other, score in alternatives.items():
            if other != token:
                _share(mass, names.after(text, other), math.exp(path + score))
        path += alternatives.get(token, -math.inf)
        is_ended = token in ENDS and (token != "" or ENDS.issuperset(tokens[i:]))
        text += "" if is_ended else token
        if is_ended or (text.strip(EDGES) and len(names.possible(text)) < 2):
            break
    left = names.after(text, token) if is_ended else names.possible(text)
    if len(left) > 1 and names.own(text) is not None:
        return None
    _share(mass, left, math.exp(path))
    total = sum(mass.values())
    if total < LEAST_MASS:
        return None
    return {label: max(math.log(part / total), LEAST) if part > 0 else LEAST for label, part in mass.items()}


def recorded_logprobs(scores: Mapping[str, float], labels: Sequence[str]) -> dict[str, float] | None:
    """Return the log-probabilities of `labels` by those that a recording has of any texts, without those of next to
    none; None where less than LEAST_MASS is theirs.

    >>> recorded_logprobs({"refund": -0.1, "exchange": -2.4, "hello": -6.0}, ["refund", "exchange", "other"])
    {'refund': -0.0955, 'exchange': -2.3955}
    """
    known = {label: scores[label] for label in labels if label in scores}
    total = math.fsum(map(math.exp, known.values()))
    if total < LEAST_MASS:
        return None
    return compact_scores({label: score - math.log(total) for label, score in known.items()})


def read_scores(value: object) -> dict[str, float] | None:
    """Read `{label: log-prob}` of a recording as hostile input; None for None. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > MAX_RECORDED:
        raise ValueError(f'"label_logprobs" must be an object of at most {MAX_RECORDED} labels with their log-probs')
    for score in value.values():
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not (is_number and -1e9 < score <= 0):
            raise ValueError('the log-probs in "label_logprobs" are numbers of at most 0')
    if math.fsum(map(math.exp, value.values())) > MOST_MASS:
        raise ValueError('the probabilities in "label_logprobs" sum to more than 1')
    return {label: float(score) for label, score in value.items()}


def compact_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores as they are stored: rounded, without those of next to none."""
    return {label: round(min(score, 0.0), DIGITS) for label, score in scores.items() if score > LEAST}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """`labels` by the spelling in which they are compared: in any case, unless two labels differ by case alone."""

    labels: Mapping[str, str]
    is_folded: bool

    @classmethod
    def of(cls, labels: Sequence[str]) -> Self:
        folded = {label.casefold(): label for label in labels}
        is_folded = len(folded) == len(set(labels))
        return cls(labels=folded if is_folded else {label: label for label in labels}, is_folded=is_folded)

    def after(self, text: str, token: str) -> list[str]:
        """The labels that a text may become with a token behind it; the one that it is where the token is an end."""
        own = self.own(text) if token in ENDS else None
        if own is not None:
            return [own]
        return [] if token in ENDS - {""} else self.possible(text + token)  # "" may be a part of a character

    def possible(self, text: str) -> list[str]:
        """The labels that a text may become: those that begin with it as it stands, else with it but for the marks
        before it, else the one that it is where marks stand around it. None before the first letter, unless a label
        begins with a mark."""
        raw, own = self._fold(text.lstrip()), self.own(text)
        longer = self._beginning(raw) or self._beginning(raw.lstrip(EDGES))
        if own is not None and (not longer or raw != raw.rstrip()):  # a space ends a label, or stands inside one
            return list(dict.fromkeys((own, *longer)))
        return longer

    def _fold(self, text: str) -> str:
        return text.casefold() if self.is_folded else text

    def _beginning(self, text: str) -> list[str]:
        return [label for name, label in self.labels.items() if text and name.startswith(text)]

    def own(self, text: str) -> str | None:
        """The label that a text is: as it stands, but for marks behind it, between equal marks, or else but for any
        marks around it, where no other label is so too."""
        raw = self._fold(text.strip())
        marks = raw[: len(raw) - len(raw.lstrip(EDGES))]
        shorter = [raw[:end] for end in range(len(raw), len(raw.rstrip(EDGES)) - 1, -1)]
        between = raw[len(marks) : -len(marks)] if marks and raw.endswith(marks[::-1]) else raw
        for name in (*shorter, between):
            if name in self.labels:
                return self.labels[name]
        core = raw.strip(EDGES)
        is_alone = sum(name.strip(EDGES) == core for name in self.labels) == 1
        return self.labels.get(core) if is_alone else None


def _share(mass: dict[str, float], labels: Sequence[str], probability: float) -> None:
    for label in labels:
        mass[label] += probability / len(labels)
