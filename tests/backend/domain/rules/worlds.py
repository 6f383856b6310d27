"""Made-up tasks whose truth is known: questions to a shop, and orders."""

import json
import random

STARTS = ("hello", "hi there", "please", "good morning", "sorry but", "listen", "dear shop", "quick question")
ENDS = ("thanks", "soon", "if you can", "today", "as I said", "again", "right now", "or tomorrow")
KEYS = {
    "refund": ("money back", "a refund", "refund me"),
    "track": ("where is", "track it", "parcel number"),
    "cancel": ("cancel it", "call off", "annul"),
    "hours": ("are you open", "opening hours", "close at"),
}
FILLERS = (
    *("blue", "green", "small", "big", "shiny", "old", "new", "heavy"),
    *("light", "round", "square", "soft", "hard", "long", "short", "wide"),
)
ITEMS = ("red shoes", "bath mat", "wall clock", "hat", "garden hose", "desk lamp", "rug", "tea towels")
SCHEMA = {
    "type": "object",
    "required": ["action", "nr"],
    "properties": {
        "action": {"enum": ["cancel", "return"]},
        "nr": {"type": ["string", "null"]},
        "n": {"type": "integer"},
        "item": {"type": "string"},
    },
}


def questions(n: int, *, seed: int = 1, wrong: float = 0.0) -> list[tuple[str, str]]:
    """`wrong`: the share of answers drawn at random."""
    rng = random.Random(seed)
    made = []
    for _ in range(n):
        label = rng.choice(sorted(KEYS))
        filler = " ".join(rng.choice(FILLERS) for _ in range(rng.randint(2, 6)))
        text = f"{rng.choice(STARTS)} {filler} {rng.choice(KEYS[label])} {rng.choice(FILLERS)} {rng.choice(ENDS)}"
        made.append((text, rng.choice(sorted(KEYS)) if rng.random() < wrong else label))
    return made


def orders(n: int, *, seed: int = 2) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    made = []
    for _ in range(n):
        action, item = rng.choice(("cancel", "return")), rng.choice(ITEMS)
        words = {"cancel": ("cancel", "call off", "do not send"), "return": ("return", "send back", "bring back")}
        answer: dict[str, object] = {"action": action, "nr": None, "item": item}
        text = f"{rng.choice(STARTS)} {rng.choice(words[action])} the {item}"
        if rng.random() < 0.7:
            answer["nr"] = f"{rng.choice('AB')}-{rng.randrange(1000, 9999)}"
            text += f" of order {answer['nr']}"
        if rng.random() < 0.4:
            answer["n"] = rng.randint(2, 9)
            text += f", all {answer['n']} of them"
        made.append((f"{text} {rng.choice(ENDS)}", json.dumps(answer)))
    return made
