"""Slot-filling sets beside SNIPS, read from folders that a reader fetches: ATIS, SLURP, Restaurant-8K and the two
domains of NLU++ as json tasks.

ATIS (Hemphill et al. 1990): `data/atis/{train,test}/{seq.in,seq.out,label}` of github.com/MiuLab/SlotGated-SLU. SLURP
(Bastianelli et al. 2020, CC BY 4.0 for the text): `dataset/slurp/{test,devel}.jsonl` of github.com/pswietojanski/slurp;
its test side trains here and its devel side is held out, since the training side is too large for the snapshot that
was at hand. Restaurant-8K (Coope et al. 2020: one slot or two an utterance, no intent) and NLU++ (Casanueva et al.
2022: any number of 40 or 48 intents; folds 0 to 9 train, 10 to 19 are held out): `span_extraction/restaurant8k` and
`nlupp/data` of github.com/PolyAI-LDN/task-specific-datasets (CC BY 4.0). Not part of the project, and nothing of it is
committed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.snips_data import read_snips

Row = tuple[str, dict[str, Any]]
Slots = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSet:
    """Texts with their answers, `{"intent", "slots": {name: words, or a list of them}}`; no text stands on both
    sides."""

    name: str
    train: tuple[Row, ...]
    held_out: tuple[Row, ...]
    schema: dict[str, Any]


def snips(folder: Path) -> SlotSet:
    """Raises FileNotFoundError."""
    read = read_snips(folder)
    held = {u.text for u in read.validate}
    train = tuple((u.text, u.answer) for u in read.train if u.text not in held)
    return SlotSet(
        name="SNIPS", train=train, held_out=tuple((u.text, u.answer) for u in read.validate), schema=read.schema
    )


def atis(folder: Path) -> SlotSet:
    """Raises FileNotFoundError."""
    return _set("ATIS", _atis_side(folder / "train"), _atis_side(folder / "test"))


def slurp(folder: Path) -> SlotSet:
    """Raises FileNotFoundError."""
    return _set("SLURP", _slurp_side(folder / "test.jsonl"), _slurp_side(folder / "devel.jsonl"))


def restaurant8k(folder: Path) -> SlotSet:
    """Raises FileNotFoundError."""
    sides = [_restaurant_side(folder / "span_extraction/restaurant8k" / name) for name in ("train_0.json", "test.json")]
    return _made("Restaurant-8K", *sides, head={})


def nlupp_hotels(folder: Path) -> SlotSet:
    """Raises FileNotFoundError."""
    return _nlupp("NLU++ hotels", folder / "nlupp/data/hotels")


def nlupp_banking(folder: Path) -> SlotSet:
    """Raises FileNotFoundError."""
    return _nlupp("NLU++ banking", folder / "nlupp/data/banking")


def as_entities(one: SlotSet) -> SlotSet:
    """The same set with a list of `{"type", "text"}` in the place of its slots, in the order of the text."""
    slots = one.schema["properties"]["slots"]["properties"]
    entity = {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": sorted(slots)}, "text": {"type": "string"}},
        "required": ["type", "text"],
        "additionalProperties": False,
    }
    head = {name: part for name, part in one.schema["properties"].items() if name != "slots"}
    schema = one.schema | {
        "properties": head | {"entities": {"type": "array", "items": entity}},
        "required": [*head, "entities"],
    }

    def row(text: str, answer: dict[str, Any]) -> Row:
        named = [
            {"type": slot, "text": value}
            for slot, values in answer["slots"].items()
            for value in (values if isinstance(values, list) else [values])
        ]
        kept = {name: value for name, value in answer.items() if name != "slots"}
        return text, kept | {"entities": sorted(named, key=lambda entity: text.find(entity["text"]))}

    sides = [tuple(row(text, answer) for text, answer in side) for side in (one.train, one.held_out)]
    return SlotSet(name=f"{one.name}, entities", train=sides[0], held_out=sides[1], schema=schema)


def _restaurant_side(path: Path) -> list[Row]:
    rows = []
    for row in json.loads(path.read_text("utf-8")):
        text = row["userInput"]["text"]
        slots: dict[str, str] = {}
        for label in row.get("labels", []):
            span = label["valueSpan"]
            slots[label["slot"]] = text[span.get("startIndex", 0) : span["endIndex"]]
        rows.append((text, {"slots": slots}))
    return rows


def _nlupp(name: str, folder: Path) -> SlotSet:
    def side(folds: range) -> list[Row]:
        rows = [row for fold in folds for row in json.loads((folder / f"fold{fold}.json").read_text("utf-8"))]
        return [
            (
                row["text"],
                {
                    "intents": sorted(row.get("intents", [])),
                    "slots": {slot: value["text"] for slot, value in sorted(row.get("slots", {}).items())},
                },
            )
            for row in rows
        ]

    train, held = side(range(10)), side(range(10, 20))
    intents = sorted({intent for _, answer in (*train, *held) for intent in answer["intents"]})
    return _made(name, train, held, head={"intents": {"type": "array", "items": {"type": "string", "enum": intents}}})


def _made(name: str, train: Sequence[Row], held: Sequence[Row], *, head: dict[str, Any]) -> SlotSet:
    """A set of answers with `slots` of one text each, and of a schema that has `head` before them."""
    unseen = {text for text, _ in held}
    kept = tuple({text: (text, answer) for text, answer in train if text not in unseen}.values())
    names = sorted({slot for _, answer in (*train, *held) for slot in answer["slots"]})
    slots = {
        "type": "object",
        "properties": {slot: {"type": "string"} for slot in names},
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": head | {"slots": slots},
        "required": [*head, "slots"],
        "additionalProperties": False,
    }
    return SlotSet(name=name, train=kept, held_out=tuple(held), schema=schema)


def _atis_side(folder: Path) -> list[tuple[str, str, Slots]]:
    columns = [(folder / name).read_text().strip().split("\n") for name in ("label", "seq.in", "seq.out")]
    rows = []
    for label, words, tags in zip(*columns, strict=True):
        slots: dict[str, list[list[str]]] = {}
        for word, tag in zip(words.split(), tags.split(), strict=True):
            if tag.startswith("B-"):
                slots.setdefault(tag[2:], []).append([word])
            elif tag.startswith("I-") and slots.get(tag[2:]):
                slots[tag[2:]][-1].append(word)
        spans = {name: [" ".join(words) for words in values] for name, values in slots.items()}
        rows.append((" ".join(words.split()), label.split("#")[0], spans))
    return rows


def _slurp_side(path: Path) -> list[tuple[str, str, Slots]]:
    rows = []
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        words = [token["surface"] for token in row["tokens"]]
        slots: dict[str, list[str]] = {}
        for entity in row["entities"]:
            slots.setdefault(entity["type"], []).append(" ".join(words[i] for i in entity["span"]))
        rows.append((" ".join(words), row["intent"], slots))
    return rows


def _set(name: str, train: Iterable[tuple[str, str, Slots]], held: Iterable[tuple[str, str, Slots]]) -> SlotSet:
    """A slot that any text fills twice is a list in all of them."""
    sides = [list({text: (text, intent, slots) for text, intent, slots in side}.values()) for side in (train, held)]
    several = {slot for side in sides for _, _, slots in side for slot, values in slots.items() if len(values) > 1}
    seen = {text for text, _, _ in sides[0]}
    sides[1] = [row for row in sides[1] if row[0] not in seen]
    intents = sorted({intent for side in sides for _, intent, _ in side})
    names = sorted({slot for side in sides for _, _, slots in side for slot in slots})
    text = {"type": "string"}
    fields = {slot: {"type": "array", "items": text} if slot in several else text for slot in names}
    schema = {
        "type": "object",
        "properties": {
            "intent": {"type": "string", "enum": intents},
            "slots": {"type": "object", "properties": fields, "additionalProperties": False},
        },
        "required": ["intent", "slots"],
        "additionalProperties": False,
    }

    def answer(intent: str, slots: Slots) -> dict[str, Any]:
        filled = {slot: list(slots[slot]) if slot in several else slots[slot][0] for slot in sorted(slots)}
        return {"intent": intent, "slots": filled}

    made = [tuple((text, answer(intent, slots)) for text, intent, slots in side) for side in sides]
    return SlotSet(name=name, train=made[0], held_out=made[1], schema=schema)
