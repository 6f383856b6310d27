"""A grammar for a slice that no grammar file knows, made from the words of the prompt: its hint, label and exemplars.

It lets a newcomer compile any toy spec without an account at a vendor. Its messages are templates around the spec's
own words: enough to see the pipeline work, not enough to teach a model anything that the spec does not already say.
"""

import functools
import re

from workers.teachers.grammar.files import build_grammar
from workers.teachers.grammar.pcfg import Grammar

_STOP = frozenset(
    re.findall(
        r"[a-z]+",
        """
        a an and are as at be by can could do does for from has have he her his how i if in into is it its like may me
        might must my of on or our she should so some such than that the their them they this those to us was we were
        what when where which who will with would you your about asks asking wants want customer customers user users
        message messages person people someone says say text input
        """,
    )
)
_FRAMES = (
    [4, "{topic}"],
    [2, "i have something about {topic}"],
    [2, "this is about {topic}"],
    [2, "{topic}, as i said"],
    [2, "so, {topic}"],
    [2, "it's {topic} again"],
    [1, "can you look at this: {topic}"],
    [1, "once more {topic} and also {detail}"],
    [2, "{topic} with {detail}"],
    [2, "{detail}... {topic}"],
)


@functools.lru_cache(maxsize=256)
def fallback_grammar(name: str, hint: str, label: str, exemplars: tuple[str, ...] = ()) -> tuple[Grammar, str]:
    """(grammar, its start symbol). Phrases of the hint weigh most; the label's own words are always among the
    topics, so that a label without any description can still be told from the others."""
    phrases = _phrases(hint)
    words = list(dict.fromkeys(content_words(f"{label} {name} {hint}")))
    label_words = " ".join(content_words(label)) or " ".join(content_words(name)) or "it"
    topics: list[object] = [[3.0, phrase] for phrase in phrases]
    topics.append([2.0 if phrases else 4.0, label_words])
    topics.extend([1.0, f"{phrase} and {label_words}"] for phrase in phrases[:6])
    topics.extend([2.0, _plain(text)] for text in exemplars if _plain(text))
    rules: dict[str, object] = {
        "start": [[3, "{body}"], [2, "{body|lower}"], [1, "{body|lower|bare}"]],
        "body": ["{hello}{frame}{bye}"],
        "hello": [[5, ""], "Hello, ", "Hi, ", "Hey, ", "Good morning, ", "Quick one: "],
        "bye": [[4, "."], [2, ""], "?", "!", " please.", ", thanks."],
        "frame": list(_FRAMES),
        "topic": topics,
        "detail": [[1.0, word] for word in words] or [[1.0, "it"]],
    }
    return build_grammar(rules, {}, revision=""), "start"


def content_words(text: str) -> list[str]:
    return [word for word in re.findall(r"[^\W_]+", text.lower()) if word not in _STOP]


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[{}]", "", text).split())


def _phrases(hint: str) -> list[str]:
    """The hint cut at its punctuation and its "or"s, stop words trimmed off both ends, at most eight words each."""
    phrases: list[str] = []
    for piece in re.split(r"[.,;:!?()/\n]|\bor\b", _plain(hint)):
        words = piece.split()
        while words and words[0].lower().strip("'\"") in _STOP:
            words.pop(0)
        while words and words[-1].lower().strip("'\"") in _STOP:
            words.pop()
        if words:
            phrases.append(" ".join(words[:8]))
    return list(dict.fromkeys(phrases))
