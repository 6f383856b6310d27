"""SNIPS: 14,484 utterances to a voice assistant, 7 intents, 39 kinds of slots (Coucke et al. 2018, CC0 1.0).

Not part of the project. `train.jsonl` and `validate.jsonl` (`{"text", "intent", "slots": [{"entity", "value"}]}`) are
taken from the folder `snips` below $KOLM_DATA (default ../shared/data); a reader gets the same from
github.com/sonos/nlu-benchmark, folder 2017-06-custom-intent-engines, each utterance's pieces joined.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASK = "Name the intent of what is said to a voice assistant, and copy the words that fill each slot."


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """`answer`: {"intent": str, "slots": {name: words}}. A slot that is filled twice (61 of 14,484 utterances) holds
    both in the order of the text, joined by ", ": an object has a name once."""

    text: str
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snips:
    """The published split; an utterance that stands in a side twice is there once."""

    train: tuple[Utterance, ...]
    validate: tuple[Utterance, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """Every intent and slot of the training side; any slot may be missing."""
        intents = sorted({u.answer["intent"] for u in self.train})
        slots = sorted({name for u in self.train for name in u.answer["slots"]})
        return {
            "type": "object",
            "properties": {
                "intent": {"type": "string", "enum": intents},
                "slots": {
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in slots},
                    "additionalProperties": False,
                },
            },
            "required": ["intent", "slots"],
            "additionalProperties": False,
        }


def read_snips(folder: Path) -> Snips:
    """Raises FileNotFoundError where the two files are not below `folder`."""
    return Snips(train=_read(folder / "snips" / "train.jsonl"), validate=_read(folder / "snips" / "validate.jsonl"))


def jsonl(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def examples(utterances: Sequence[Utterance]) -> bytes:
    return jsonl({"input": u.text, "output": u.answer} for u in utterances)


def _read(path: Path) -> tuple[Utterance, ...]:
    found: dict[str, Utterance] = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        text = " ".join(row["text"].split())
        slots: dict[str, str] = {}
        for slot in row["slots"]:
            words = " ".join(slot["value"].split())
            name = slot["entity"]
            slots[name] = f"{slots[name]}, {words}" if name in slots else words
        found.setdefault(
            text, Utterance(text=text, answer={"intent": row["intent"], "slots": dict(sorted(slots.items()))})
        )
    return tuple(found.values())
