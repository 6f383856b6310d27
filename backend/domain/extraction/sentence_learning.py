"""Learning of the sentences of a text task from pairs of input and text.

1. Words. A word that often stands in a text and not in its input is the task's own ("Wants", "order"); what else
   stands in both is copied. Runs of copied words are values, all else is literal: the text's form.
2. Forms. Those that several texts have are kept, and each text is read again by them, the commonest first: so a value
   with one of the task's own words in it ("charger for bikes") is read as one.
3. Parts. Places of different forms whose values are of the same words (numbers by their shape) are one part: what is
   learned of an order number in one sentence holds for all.
4. Kinds. Forms of which one has all words of the other, and that differ in their parts, are one kind ("Wants to return
   {}.", "Wants to return {} from order {}."): which of them it is follows from the parts that are there.

What comes of it is an extraction like that of a json task, and is judged as one: by what it brings back of the pairs.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.domain.answers.excerpts import excerpt
from backend.domain.extraction.learning import MOST_EXAMPLES, learn_plan
from backend.domain.extraction.plan import ExtractionPlan, Refusal
from backend.domain.extraction.sentences import Form, Sentences, Source, is_count

OWN_SHARE = 0.1  # of the texts with a word, in whose inputs it does not stand, from which on it is the task's own
OWN_DIGITS_SHARE = 0.9  # the same of a word with digits: "7" may stand for "seven"
LEAST_OWN = 2
LEAST_OF_FORM = 2  # texts that have a form
MOST_FORMS = 200
MOST_PLACES = 8
SAME_PART = 0.3  # of the share of a part's words that are said twice, which a place's values have in common with it
LEAST_KNOWN = 0.1  # of the words of a place's values, at least, that the part has
LEAST_READ = 0.9  # of the texts that have a form; below that it is no task of fixed forms
NO_FORM = "its texts have no form in common"

_TOKEN = re.compile(r"\s+|\w(?:[\w'’.@:/-]*\w)?|[^\w\s]")
Bare = tuple[str, ...]  # the literals of a form
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """A form with what its places are: a count or not."""

    literals: Bare
    counts: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The words of its values, shared by the parts of one sort (the first order number and the second), and the words
    that stand before its places."""

    words: Counter[str]
    counts: bool
    before: Counter[str] = field(default_factory=Counter)

    def share_after(self, word: str) -> float:
        return self.before[word] / self.before.total()


def learn_text_plan(pairs: Pairs) -> ExtractionPlan:
    """The plan by which a span student answers with texts, its sentences among it, with its refusals."""
    sentences = learn_sentences(pairs)
    read = [(source, sentences.read(text, source)) for source, text in pairs]
    plan = learn_plan(sentences.schema(), [(source, answer) for source, answer in read if answer is not None])
    unread = [text for (_, text), (_, answer) in zip(pairs, read, strict=True) if answer is None]
    plan = replace(plan, sentences=sentences, n_pairs=len(pairs), n_values=plan.n_values + len(unread))
    if len(unread) <= (1 - LEAST_READ) * len(pairs):
        return plan
    examples = tuple(excerpt(text, 60) for text in unread[:MOST_EXAMPLES])
    lost = Refusal(path="", why=NO_FORM, n=len(pairs), n_wrong=len(unread), examples=examples)
    return replace(plan, refusals=(lost, *plan.refusals))


def learn_sentences(pairs: Pairs) -> Sentences:
    """The forms of the texts, without those that fewer than LEAST_OF_FORM have."""
    sources = [(Source(source), text) for source, text in pairs]
    patterns = _patterns(sources, _own_words(sources))
    values: dict[Bare, list[list[str]]] = {}
    for source, text in sources:
        read = _read(patterns, text, source)
        if read is not None:
            values.setdefault(read[0], []).append(read[1])
    ranked = sorted(values, key=lambda form: (-len(values[form]), form))
    counted = {pattern.literals: pattern.counts for pattern in patterns}
    places, counts = _parts_of(ranked, values, counted)
    kinds = _kinds_of(ranked, places)
    in_order = [pattern.literals for pattern in patterns if pattern.literals in values]
    return Sentences(
        forms=tuple(
            Form(kind=kinds[form], literals=form, places=places[form], n=len(values[form])) for form in in_order
        ),
        counts=counts,
    )


def _patterns(sources: Sequence[tuple[Source, str]], own: set[str]) -> list[_Pattern]:
    """The forms that are kept, in the order in which texts are read by them: those with counts first, which take a
    number apart from what it counts, then the commonest."""
    values: dict[Bare, list[list[str]]] = {}
    for source, text in sources:
        bare = _bare_form(text, source, own)
        if bare is not None:
            values.setdefault(bare[0], []).append(bare[1])
    kept = sorted((form for form in values if len(values[form]) >= LEAST_OF_FORM), key=lambda f: (-len(values[f]), f))
    patterns = [
        _Pattern(literals=form, counts=tuple(all(map(is_count, column)) for column in zip(*values[form], strict=True)))
        for form in kept[:MOST_FORMS]
    ]
    return sorted(patterns, key=lambda pattern: -sum(pattern.counts))


def _own_words(sources: Sequence[tuple[Source, str]]) -> set[str]:
    n_there: Counter[str] = Counter()
    n_missing: Counter[str] = Counter()
    for source, text in sources:
        words = _words(text)
        n_there.update(words)
        n_missing.update(word for word in words if not source.has(word))
    return {
        word
        for word, n in n_missing.items()
        if n >= LEAST_OWN and n >= (OWN_DIGITS_SHARE if _has_digit(word) else OWN_SHARE) * n_there[word]
    }


def _words(text: str) -> set[str]:
    return {token.casefold() for token in _TOKEN.findall(text) if _is_word(token)}


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def _bare_form(text: str, source: Source, own: set[str]) -> tuple[Bare, list[str]] | None:
    """The literals of a text and its values; None where a word is neither the task's own nor the input's."""
    literals, values, value = [""], list[str](), ""
    for token, following in _with_next(_TOKEN.findall(text)):
        is_copied = _is_word(token) and token.casefold() not in own
        is_within = bool(following) and following.casefold() not in own
        goes_on = is_within and bool(value) and source.has_words(value + token + following)
        if not value and not is_copied:
            literals[-1] += token
        elif is_copied or goes_on:
            value += token
        else:
            values.append(value)
            literals.append(token)
            value = ""
    if value:
        values.append(value)
        literals.append("")
    is_apart = len(values) <= MOST_PLACES and all(literals[1:-1])
    return (tuple(literals), values) if is_apart and all(map(source.has, values)) else None


def _with_next(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each token with the word that follows it directly; "" where none does."""
    for at, token in enumerate(tokens):
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        yield token, after if after and _is_word(after) else ""


def _read(patterns: Sequence[_Pattern], text: str, source: Source) -> tuple[Bare, list[str]] | None:
    """The first form of a text, with its values, which stand in the input."""
    for pattern in patterns:
        places = tuple(range(len(pattern.counts)))
        values = Form(kind=0, literals=pattern.literals, places=places, n=0).values_in(text)
        if values is None or not all(map(source.has, values)):
            continue
        if all(is_count(value) for value, counts in zip(values, pattern.counts, strict=True) if counts):
            return pattern.literals, values
    return None


def _parts_of(
    forms: Sequence[Bare], values: Mapping[Bare, Sequence[Sequence[str]]], counted: Mapping[Bare, Sequence[bool]]
) -> tuple[dict[Bare, tuple[int, ...]], frozenset[int]]:
    """The numbers of the parts at the places of each form, and which of them are counts."""
    parts: list[_Part] = []
    places: dict[Bare, tuple[int, ...]] = {}
    for form in forms:
        taken: list[int] = []
        for at, column in enumerate(zip(*values[form], strict=True)):
            words = Counter(word for value in column for word in _shapes(value))
            counts, before = counted[form][at], _last_word(form[at])
            alike = [
                number for number, part in enumerate(parts) if part.counts == counts and _is_like(words, part.words)
            ]
            chosen = max(
                (number for number in alike if number not in taken),
                key=lambda number: (_coverage(words, parts[number].words) + parts[number].share_after(before), -number),
                default=len(parts),
            )
            if chosen == len(parts):  # the second of its sort in a form knows the words of the first
                known = parts[alike[0]].words if alike else Counter[str]()
                parts.append(_Part(words=known, counts=counts))
            parts[chosen].words.update(words)
            parts[chosen].before[before] += len(column)
            taken.append(chosen)
        places[form] = tuple(taken)
    return places, frozenset(number for number, part in enumerate(parts) if part.counts)


def _is_like(words: Counter[str], known: Counter[str]) -> bool:
    """Say whether a place's values are of a part's sort: as many of their words are known as of the part's own words
    are said again, or nearly."""
    again = _coverage(known, Counter({word: n - 1 for word, n in known.items()}))
    return _coverage(words, known) >= max(LEAST_KNOWN, SAME_PART * again)


def _last_word(literal: str) -> str:
    words = [token.casefold() for token in _TOKEN.findall(literal) if _is_word(token)]
    return words[-1] if words else ""


def _shapes(value: str) -> list[str]:
    """The words of a value, those with digits by their shape: "AB-1203" is "aa-9999"."""
    words = [token.casefold() for token in _TOKEN.findall(value) if _is_word(token)]
    return [re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", word)) if _has_digit(word) else word for word in words]


def _coverage(words: Counter[str], known: Counter[str]) -> float:
    return sum(n for word, n in words.items() if known[word]) / max(1, words.total())


def _kinds_of(forms: Sequence[Bare], places: Mapping[Bare, tuple[int, ...]]) -> dict[Bare, int]:
    """The numbers of the forms' kinds: a form is of the kind that has one with all of its words, or none but its words,
    and none with the same parts; of several such kinds that which is nearest."""
    words = {form: frozenset(word for literal in form for word in _words(literal)) for form in forms}
    kinds: list[list[Bare]] = []
    for form in forms:
        able = [kind for kind in kinds if all(set(places[form]) != set(places[other]) for other in kind)]
        near = [max(_nearness(words[form], words[other]) for other in kind) for kind in able]
        best = max(range(len(able)), key=lambda i: (near[i], -i), default=-1)
        if best >= 0 and near[best] > 0:
            able[best].append(form)
        else:
            kinds.append([form])
    return {form: number for number, kind in enumerate(kinds) for form in kind}


def _nearness(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of the words of both that are common, where one has all of the other's; else 0."""
    return (1 + len(one & other)) / (1 + len(one | other)) if one <= other or other <= one else 0.0
