"""Generated tasks: a system message, an input, the answer. Which fields, names, phrases and schema is chance, so that
what can be learnt from them is to look the value up in the input and copy it."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_runners.tiny_base import words
from gpu_runners.tiny_base.spans import KINDS, Kind, pseudo_word

# where a system message says the schema in full, as backend.domain.spec.task_prompt does; longer ones name the fields
SCHEMA_CHARS = 1500
_OPENERS = ("", "", "hello, ", "hi, ", "dear team, ", "good morning, ", "please help, ", "ok ")
_CLOSERS = ("", "", ", thanks", ". thank you", ". kind regards", "!", ".", ", please")
_JOINS = (", ", " and ", ". ", " ", ", also ", "; ")
_TASKS = (
    "",
    "",
    "Extract the fields of this message.",
    "Find what the customer says about each field.",
    "Read the request and return its details.",
    "Turn the message into a record.",
    "Pull the values out of the text.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    system: str
    user: str
    answer: str


def answer_text(value: dict[str, Any]) -> str:
    """The white space that constrained decoding allows."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def chats(seed: int) -> Iterator[Chat]:
    """Yield chats without end. Two thirds are extractions."""
    rng = random.Random(seed)
    makers = (extraction, extraction, extraction, pairs, pairs, label, short_text)
    while True:
        yield rng.choice(makers)(rng)


def extraction(rng: random.Random) -> Chat:
    """A message in words. Some spans are asked for, some are not; some fields have no span and are left out or null."""
    chosen = rng.sample(list(KINDS), rng.randint(1, 4))
    names = {kind: rng.choice(KINDS[kind].fields) for kind in chosen}
    values = {kind: KINDS[kind].make(rng) for kind in chosen}
    n_mentioned = max(1, len(chosen) - (rng.random() < 0.3))
    mentioned, asked = chosen[:n_mentioned], rng.sample(chosen, max(1, len(chosen) - (rng.random() < 0.3)))
    topics = rng.sample(list(words.TOPICS), rng.randint(2, 5)) if rng.random() < 0.5 else []
    parts = [rng.choice(KINDS[kind].say).format(v=values[kind]) for kind in mentioned]
    properties, answer = _schema_and_values(rng, asked, names, {kind: values[kind] for kind in mentioned})
    if topics:
        name = rng.choice(("intent", "action", "topic", "kind"))
        answer[name] = rng.choice(topics)
        wanted: dict[str, Any] = {"enum": topics} if rng.random() < 0.5 else {"enum": topics, "type": "string"}
        properties = {name: wanted} | properties if rng.random() < 0.7 else properties | {name: wanted}
        parts.insert(0, rng.choice(words.TOPICS[answer[name]]))
    return Chat(
        system=system_message(rng, properties), user=_message(rng, parts), answer=_write_answer(properties, answer)
    )


def _schema_and_values(
    rng: random.Random, asked: list[str], names: dict[str, str], values: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    with_null = rng.random() < 0.4
    properties: dict[str, Any] = {}
    answer: dict[str, Any] = {}
    for kind in asked:
        number = KINDS[kind].is_number
        one = "integer" if number else "string"
        properties[names[kind]] = {"type": [one, "null"] if with_null else one}
        if kind in values:
            answer[names[kind]] = int(values[kind]) if number else values[kind]
        elif with_null:
            answer[names[kind]] = None
    return properties, answer


def pairs(rng: random.Random) -> Chat:
    """A list of names and values, all of them invented; the answer is those that are asked for."""
    n = rng.randint(2, 4)
    names = list({_field_name(rng) for _ in range(n)})
    values = {name: " ".join(pseudo_word(rng) for _ in range(rng.choice((1, 1, 2, 3)))) for name in sorted(names)}
    shuffled = rng.sample(sorted(values), len(values))
    form, join = rng.choice((("{k}: {v}", "; "), ("{k} is {v}", ", "), ("the {k} is {v}", ". "), ("{k}={v}", "\n")))
    text = join.join(form.format(k=name.replace("_", " "), v=values[name]) for name in shuffled)
    asked = rng.sample(shuffled, rng.randint(1, len(shuffled)))
    properties = {name: {"type": "string"} for name in asked}
    return Chat(
        system=system_message(rng, properties),
        user=text,
        answer=_write_answer(properties, {k: values[k] for k in asked}),
    )


def label(rng: random.Random) -> Chat:
    topics = rng.sample(list(words.TOPICS), rng.randint(2, 6))
    right = rng.choice(topics)
    kinds = rng.sample(list(KINDS), rng.randint(0, 2))
    parts = [rng.choice(words.TOPICS[right]), *(_mention(rng, KINDS[kind]) for kind in kinds)]
    lines = " | ".join(topics)
    task = rng.choice(("Classify the message.", "Route the request.", ""))
    system = f"{task}\nAnswer with one of these labels alone: {lines}"
    return Chat(system=system.lstrip(), user=_message(rng, parts), answer=right)


def short_text(rng: random.Random) -> Chat:
    name, thing = KINDS["person"].make(rng), KINDS["thing"].make(rng)
    parts = [f"this is {name}", f"my {thing} is broken"]
    parts += [_mention(rng, KINDS[kind]) for kind in rng.sample(["date", "code", "amount"], rng.randint(0, 2))]
    rng.shuffle(parts)
    if rng.random() < 0.5:
        return Chat(
            system="Write a short reply to the customer.",
            user=_message(rng, parts),
            answer=f"Hello {name}, we are sorry about your {thing}.",
        )
    return Chat(system="Say in a few words what this is about.", user=_message(rng, parts), answer=f"{name}: {thing}")


def system_message(rng: random.Random, properties: dict[str, Any]) -> str:
    """The task and either the schema or the fields' names, both in the order of the answer, as
    backend.domain.spec.task_prompt writes them."""
    schema: dict[str, Any] = {"additionalProperties": False, "properties": properties}
    if rng.random() < 0.7:
        schema["required"] = list(properties)
    shown = json.dumps(schema | {"type": "object"}, ensure_ascii=False, separators=(",", ":"))
    task = rng.choice(_TASKS)
    if rng.random() < 0.5 and len(shown) <= SCHEMA_CHARS:
        return f"{task}\nAnswer with JSON alone that fits this schema: {shown}"
    return f"{task}\nAnswer with JSON alone that has these fields: {', '.join(properties)}"


def _write_answer(properties: dict[str, Any], answer: dict[str, Any]) -> str:
    """Keys as the system message has them."""
    return answer_text({name: answer[name] for name in properties if name in answer})


def _mention(rng: random.Random, kind: Kind) -> str:
    return rng.choice(kind.say).format(v=kind.make(rng))


def _message(rng: random.Random, parts: list[str]) -> str:
    """The parts in the order of chance with common words between them."""
    first, rest = parts[0], parts[1:]
    rng.shuffle(rest)
    text = rng.choice(_OPENERS) + first
    for part in rest:
        filler = " ".join(rng.choice(words.COMMON) for _ in range(rng.choice((0, 0, 0, 0, 1, 3))))
        text += rng.choice(_JOINS) + (f"{filler} " if filler else "") + part
    text += rng.choice(_CLOSERS)
    return text[0].upper() + text[1:] if rng.random() < 0.5 else text


def _field_name(rng: random.Random) -> str:
    name = rng.choice(words.FIELD_WORDS)
    return f"{name}_{rng.choice(words.FIELD_WORDS)}" if rng.random() < 0.3 else name
