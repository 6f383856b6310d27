"""A rule list as one Python closure.

What a call costs is about independent of how many rules there are: every rule waits at one word that it needs, and only
rules whose word is in the text are looked at.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from backend.domain.rules.conditions import Test, View, all_of, literals, needle, test_of
from backend.domain.rules.extraction import compile_fields
from backend.domain.rules.rule_list import LabelRule, RuleList
from backend.domain.rules.wording import ASCII_BYTES, word_bytes

Answerer = Callable[[str], str | None]
RuleNumber = Callable[[str], int | None]
_BATCH = 1024  # texts that are normalised in one piece
_LINES = bytes(0x0A if code == 0x0A else made for code, made in enumerate(ASCII_BYTES))

# Of a rule that waits at a word: its number, a phrase that it needs too (b"": none), and what else it asks, if any.
Waiting = tuple[tuple[int, bytes, Test | None], ...]


def compile_rules(rules: RuleList) -> Answerer:
    """The answer (a label, or a json task's answer text) when a rule is sure; None: ask the model. Never raises."""
    if rules.task == "json":
        return compile_fields(rules)
    answers = [rule.answer for rule in rules.rules if isinstance(rule, LabelRule)]
    first = _first_of(rules)

    def answer(text: str) -> str | None:
        number = first(text, word_bytes(text))
        return None if number is None else answers[number]

    return answer


def compile_numbers(rules: RuleList) -> RuleNumber:
    """Return which rule of a label task answers (its index), for what is told beside the answer."""
    first = _first_of(rules)
    return lambda text: first(text, word_bytes(text))


def compile_batch(rules: RuleList) -> Callable[[Sequence[str]], list[str | None]]:
    """`compile_rules` on many texts at a time, for less a text: plain ones are normalised in one piece."""
    if rules.task == "json":
        one = compile_fields(rules)
        return lambda texts: [one(text) for text in texts]
    answers = [rule.answer for rule in rules.rules if isinstance(rule, LabelRule)]
    first = _first_of(rules)

    def answer(texts: Sequence[str]) -> list[str | None]:
        numbers: list[int | None] = []
        for start in range(0, len(texts), _BATCH):
            part = texts[start : start + _BATCH]
            numbers += [first(text, words) for text, words in zip(part, _words_of_all(part), strict=True)]
        return [None if number is None else answers[number] for number in numbers]

    return answer


def _words_of_all(texts: Sequence[str]) -> Iterable[list[bytes]]:
    joined = "\n".join(texts)
    if joined.isascii() and joined.count("\n") == len(texts) - 1:
        return map(bytes.split, joined.encode().translate(_LINES, b"'").split(b"\n"))
    return map(word_bytes, texts)


def _first_of(rules: RuleList) -> Callable[[str, list[bytes]], int | None]:
    """The index of the first rule that applies to a text of these words."""
    by_word, always = _waiting(rules)
    n_rules = len(rules.rules)
    present = frozenset(by_word).intersection
    rows = by_word.__getitem__

    def first(text: str, words: list[bytes]) -> int | None:
        rows_present = present(words)
        if not rows_present and not always:
            return None
        best, view = n_rules, None
        padded = b" ^ " + b" ".join(words) + b" $ "
        for row in (*map(rows, rows_present), always):
            for number, phrase, test in row:
                if number >= best:
                    break
                if phrase not in padded:
                    continue
                if test is None:
                    best = number
                    break
                view = view or View(text, padded)
                if test(view):
                    best = number
                    break
        return None if best == n_rules else best

    return first


def _waiting(rules: RuleList) -> tuple[dict[bytes, Waiting], Waiting]:
    """Index rules by the word at which each waits, of its words the one that fewest rules know; and those without a
    word."""
    known = [rule for rule in rules.rules if isinstance(rule, LabelRule)]
    needed = [sorted({word for condition in rule.when for word in literals(condition)}) for rule in known]
    spread = Counter(word for words in needed for word in words)
    rows: defaultdict[bytes | None, list[tuple[int, bytes, Test | None]]] = defaultdict(list)
    for number, (rule, words) in enumerate(zip(known, needed, strict=True)):
        word = min(words, key=lambda word: (spread[word], -len(word), word), default=None)
        rows[word].append((number, *_asks(rule, word)))
    always = tuple(rows.pop(None, ()))
    return {word: tuple(row) for word, row in rows.items() if word is not None}, always


def _asks(rule: LabelRule, word: bytes | None) -> tuple[bytes, Test | None]:
    """Return what is left to ask once the word is known to be there."""
    when = [c for c in rule.when if word is None or c.encode() != word]
    plain = [c for c in when if c[0] != "<" and "#" not in c]
    phrase = needle(plain[0]) if plain else b""
    rest = [c for c in when if c not in plain[:1]]
    return phrase, all_of(map(test_of, rest), map(test_of, rule.unless)) if rest or rule.unless else None
