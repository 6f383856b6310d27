"""The reading of an answer to "which label?", whatever a teacher writes around the label.

The place of a label decides. It is read as the whole answer or a whole line of it, before an explanation ("x - the
customer asks …"), after a word for it ("the label for this message is x", "Intent: x"), in a tag, in `\\boxed{x}` and
in a JSON value. A label that is merely mentioned counts only where it is the one label that occurs, is written as no
prose writes a word (with an underscore, or in the label's own capitals), and stands in a plain English sentence.

A wrong vote costs more than an unread answer. So an answer that places two labels is read only where the last place is
called the final one or corrects a bare line; and nothing is read from a sentence that denies, doubts or asks.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from backend.domain.unicode_forms import unicode_form
from workers.teachers.prompts.label_spellings import WORD, Spellings, loose, spellings, words_of
from workers.teachers.prompts.label_words import (
    AFTER_LINE_START,
    BOX,
    DOUBT,
    END,
    ENGLISH,
    EXPLAINS,
    FINAL,
    KEYS,
    LEAD,
    LINE_MARK,
    OBJECT,
    PICTURES,
    REFUSES,
    STOP,
    TAG,
    TAKEN_BACK,
    TEX,
    TURN,
)

MAX_CHARS = 20_000
NEAR = 400  # characters of a sentence that are looked at on either side of a label


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A place where an answer has a label; None where the label is denied or doubted there."""

    label: str | None
    at: int
    is_named: bool = False
    is_final: bool = False


def read_label(answer: str, labels: Sequence[str]) -> str | None:
    """The label that an answer decides for, or None."""
    reply = _without_thought(unicode_form("NFC", answer[:MAX_CHARS])).strip()
    if reply in labels:
        return reply
    known = spellings(tuple(labels))
    try:
        return _of_value(_json(reply), known)
    except (ValueError, RecursionError):
        pass
    return _of_text(reply, known)


def _of_text(reply: str, known: Spellings) -> str | None:
    """The label in a text that is no JSON."""
    marked = list(_inside_marks(reply, known))
    text, names = known.plain(reply), known.names
    places = [*_lines(text, names), *_behind_lead(text, names)]
    finals = {*marked, *(known.label(place.label) for place in places if place.is_final)}
    if finals:
        return _sole(finals)
    if places:
        last = max(places, key=lambda place: (place.at, place.is_named))
        return known.label(_sole({place.label for place in places if place.is_named or not last.is_named}))
    return known.label(_only_mention(text, names))


def bare_label(text: str, names: Sequence[str]) -> str | None:
    """The label that a text is, whatever marks stand around it."""
    by_loose = _by_loose(tuple(names))
    return by_loose.get(loose(text)) or by_loose.get(loose(PICTURES.sub("", text.strip())))


@lru_cache(maxsize=64)
def _by_loose(names: tuple[str, ...]) -> dict[str, str]:
    return {loose(name): name for name in names}


def _sole(names: set[str | None]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None


def _without_thought(text: str) -> str:
    """The text after its thoughts; "" of a text that is nothing else."""
    _, end, after = text.rpartition("</think>")
    return after if end else "" if text.lstrip().startswith("<think>") else text


def _json(text: str) -> object:
    """Decode JSON, numbers as they are spelt: 1.0 may be a label beside 1. Raises ValueError or RecursionError."""
    return json.loads(text, object_pairs_hook=_object, parse_int=str, parse_float=str, parse_constant=str)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _of_value(value: object, known: Spellings, depth: int = 0) -> str | None:
    """The label in a JSON value: under a key that is a word for it, else the one value that is a label."""
    if isinstance(value, list):
        return _of_value(value[0], known, depth + 1) if len(value) == 1 and depth < 3 else None
    if isinstance(value, dict):
        named = [item for key, item in value.items() if KEYS.fullmatch(key)]
        items = named or [item for key, item in value.items() if not DOUBT.search(key.replace("_", " "))]
        names = {_of_value(item, known, depth + 1) for item in items} if depth < 3 else set()
        return _sole(names if named else names - {None})
    labels = known.labels.values()
    if value is None and "null" not in labels:
        return "None" if "None" in labels else None
    return _whole(value if isinstance(value, str) else json.dumps(value), known)


def _whole(text: str, known: Spellings) -> str | None:
    """The label that a value, or the text between two marks, is."""
    return (
        text.strip()
        if text.strip() in known.labels.values()
        else known.label(bare_label(known.plain(text), known.names))
    )


def _inside_marks(reply: str, known: Spellings) -> Iterator[str]:
    """The labels in tags, boxes and JSON objects inside the text."""
    texts = [match[2] for match in TAG.finditer(reply)]
    texts += [TEX.sub(r"\1", match[1] or match[2] or "") for match in BOX.finditer(reply)]
    names = [_whole(text, known) for text in texts]
    for match in OBJECT.finditer(reply):
        try:
            names.append(_of_value(_json(match[0]), known))
        except (ValueError, RecursionError):
            continue
    yield from (name for name in names if name is not None)


@lru_cache(maxsize=64)
def _patterns(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Any label as a whole word, longest first; and a word for it with the label behind."""
    any_label = "|".join(map(words_of, sorted({loose(name) for name in names} - {""}, key=len, reverse=True)))
    whole = rf"(?<!{WORD})(?<!\w-)(?P<label>{any_label or '(?!)'})(?!{WORD}|-\w)"
    return re.compile(whole, re.IGNORECASE), re.compile(LEAD + whole + END, re.IGNORECASE)


def _behind_lead(text: str, names: Sequence[str]) -> Iterator[_Place]:
    """The places behind a word for a label."""
    for match in _patterns(tuple(names))[1].finditer(text):
        label = bare_label(match["label"], names)
        at = match.start("label")
        before = STOP.split(text[max(0, at - NEAR) : at].rstrip())[-1]
        is_denied = DOUBT.search(TURN.split(before)[-1]) or _is_taken_back(text, match.end("label"), label, names)
        label = None if is_denied else label
        yield _Place(label=label, at=at, is_named=True, is_final=bool(label and FINAL.search(before)))


def _lines(text: str, names: Sequence[str]) -> Iterator[_Place]:
    """The lines that are a label, and of the first and the last one also a label before an explanation."""
    lines = [match for match in re.finditer(r"[^\n]+", text) if match[0].strip()]
    for i, line in enumerate(lines):
        label = bare_label(LINE_MARK.sub("", line[0]), names)
        if label is not None:
            before = STOP.split(lines[i - 1][0].strip())[-1] if i else ""
            yield _Place(label=None if DOUBT.search(before) else label, at=line.start())
        elif i in (0, len(lines) - 1):
            start = line.start() + len(line[0]) - len(LINE_MARK.sub("", line[0]).lstrip())
            match = _patterns(tuple(names))[0].match(text, start)
            if match is None or match["label"].isdigit() or not AFTER_LINE_START.match(text, match.end()):
                continue
            label = bare_label(match["label"], names)
            is_denied = _is_taken_back(text, match.end(), label, names)
            yield _Place(label=None if is_denied else label, at=start)


def _sentence_after(text: str, at: int) -> str:
    return STOP.split(text[at : at + NEAR], maxsplit=1)[0]


def _is_taken_back(text: str, end: int, label: str | None, names: Sequence[str]) -> bool:
    """Tell whether what follows a label in its sentence denies it, or lists another label beside it."""
    tail = _sentence_after(text, end)
    if text[end + len(tail) : end + len(tail) + 1] in ("?", "？") or TAKEN_BACK.match(tail):
        return True
    if EXPLAINS.match(tail):
        return False
    for match in _patterns(tuple(names))[0].finditer(tail):
        if bare_label(match["label"], names) == label:
            continue
        is_listed = re.search(r"[,;:/|()&]\s*$", tail[: match.start()]) and re.match(
            r"\s*(?:$|[,;:/|()&])", tail[match.end() :]
        )
        if is_listed or _is_unmistakable(match["label"], names):
            return True
    return False


def _is_unmistakable(written: str, names: Sequence[str]) -> bool:
    """Tell whether no prose writes a word like this: with an underscore, or as the label has its capitals and
    digits."""
    rest = re.split(r"[\s-]", written, maxsplit=1)[1:]
    return "_" in written or (written in names and any(char.isupper() or char.isdigit() for char in "".join(rest)))


def _only_mention(text: str, names: Sequence[str]) -> str | None:
    """The one label that occurs, where each sentence that has it is plain."""
    matches = list(_patterns(tuple(names))[0].finditer(text))
    mentioned = {bare_label(match["label"], names) for match in matches}
    if len(mentioned) != 1 or REFUSES.search(text):
        return None
    for match in matches:
        tail = _sentence_after(text, match.end())
        before = STOP.split(text[max(0, match.start() - NEAR) : match.start()])[-1]
        sentence = f"{before} {tail}"
        is_asked = text[match.end() + len(tail) :][:1] in ("?", "？")
        if is_asked or DOUBT.search(sentence) or not ENGLISH.search(sentence):
            return None
        if not _is_unmistakable(match["label"], names):
            return None
    return mentioned.pop()
