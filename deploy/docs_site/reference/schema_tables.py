"""A JSON Schema's object as a table of its fields; what it refers to is a link."""

import json
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]
Link = Callable[[str], str]
LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
LONGEST_DEFAULT = 60


def fields_table(schema: Schema, link: Link) -> str:
    """The table of an object's fields; a sentence where it has none of its own."""
    fields = schema.get("properties", {})
    if not fields:
        return f"{type_words(schema, link)}.\n".capitalize() if "$ref" not in schema else ""
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {type_words(field, link)} | {_about(field, name in required)} |"
        for name, field in fields.items()
    ]
    return "\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n"


def type_words(schema: Schema, link: Link) -> str:
    """Say what a value is, in a few words."""
    if "$ref" in schema:
        return link(schema["$ref"].rsplit("/", 1)[1])
    several = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf")
    if several:
        return " or ".join(dict.fromkeys(type_words(one, link) for one in several))
    if "const" in schema:
        return f"`{cell(json.dumps(schema['const']))}`"
    if "enum" in schema:
        return ", ".join(f"`{cell(json.dumps(value))}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {type_words(schema.get('items', {}), link)}"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def cell(text: str) -> str:
    """Text that stays within its cell of a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _about(field: Schema, is_required: bool) -> str:
    limits = [words.format(field[name]) for name, words in LIMITS.items() if name in field]
    default = json.dumps(field["default"]) if "default" in field else ""
    parts = [
        cell(field.get("description", "")),
        "**Required.**" if is_required else "",
        f"{'; '.join(limits).capitalize()}." if limits else "",
        f"Default: `{cell(default)}`." if default and default != "null" and len(default) < LONGEST_DEFAULT else "",
    ]
    return " ".join(part for part in parts if part)
