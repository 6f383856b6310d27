"""The problems of a spec, in words that say what to do: a walk over the raw document first, then pydantic's
findings translated.

Values are quoted back only where they name a choice: a customer who pastes a secret into the wrong field must not
meet it again in a log.
"""

import types
from itertools import islice
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from backend.domain.errors import Problem
from backend.domain.pointers import join, kind_of, suggestion

MAX_PROBLEMS = 200
MAX_SHOWN = 50  # of them, in one answer
MAX_DEPTH = 32
MAX_VALUES = 200_000
MAX_CHARS = 8_000_000

_RANGES = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "decimal_type": "a number",
    "is_instance_of": "a number",
}


def document_problems(data: object) -> list[Problem]:
    """Faults of the raw document that no field is to blame for: depth, size, keys that are not text, text that cannot
    be stored.
    """
    if not isinstance(data, dict):
        return [
            Problem(
                pointer="",
                message=f"a spec is an object with keys such as name and task; this is {kind_of(data)}",
                code="wrong_type",
            )
        ]
    problems: list[Problem] = []
    stack: list[tuple[str, object, int]] = [("", data, 0)]
    n_values = n_chars = 0
    while stack and len(problems) < MAX_SHOWN:
        pointer, value, depth = stack.pop()
        n_values += 1
        if depth > MAX_DEPTH:
            problems.append(
                Problem(pointer=pointer, message=f"nested more than {MAX_DEPTH} deep; flatten it", code="too_large")
            )
        elif isinstance(value, str):
            n_chars += len(value)
            if fault := _text_fault(value):
                problems.append(Problem(pointer=pointer, message=fault, code="bad_text"))
        elif isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    message = f'the key {str(key)[:40]} is {kind_of(key)}; write it in quotes: "{str(key)[:40]}"'
                    problems.append(Problem(pointer=pointer, message=message, code="wrong_type"))
                else:
                    stack.append((join(pointer, key), item, depth + 1))
        elif isinstance(value, list):
            stack.extend((join(pointer, i), item, depth + 1) for i, item in enumerate(value))
        if n_values > MAX_VALUES or n_chars > MAX_CHARS:
            size = f"{MAX_VALUES:,} values or {MAX_CHARS:,} characters"
            message = f"the spec holds more than {size}; upload examples and captures instead"
            return [Problem(pointer="", message=message, code="too_large")]
    return sorted(problems, key=lambda problem: problem.pointer)


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character; remove it"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "is not valid Unicode (half of a surrogate pair); send it as UTF-8"
    return None


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Pydantic's first `MAX_PROBLEMS` findings as problems, in the order of the document's fields."""
    errors = error.errors(include_url=False)
    # a default that could not be made for want of another field is that field's problem
    shown = (details for details in errors if details["type"] != "default_factory_not_called")
    return [_problem(details, model) for details in islice(shown, MAX_PROBLEMS)]


def _problem(details: ErrorDetails, model: type[BaseModel]) -> Problem:
    pointer, owner = _locate(details["loc"], model)
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    name = str(details["loc"][-1]) if details["loc"] else ""
    if kind == "extra_forbidden":
        return Problem(pointer=pointer, message=_unknown_key(name, owner), code="unknown_key")
    if kind == "missing":
        return Problem(pointer=pointer, message=f'add "{name}": {_description(owner, name)}', code="missing")
    if kind in ("literal_error", "union_tag_invalid"):
        if kind == "union_tag_invalid":
            pointer = join(pointer, str(context["discriminator"]).strip("'"))
        return Problem(pointer=pointer, message=_unknown_value(value, context, owner), code="unknown_value")
    if kind == "union_tag_not_found":
        tag = str(context["discriminator"]).strip("'")
        return Problem(pointer=join(pointer, tag), message=f'add "{tag}": {_tags(owner)}', code="missing")
    if kind in _RANGES:
        words, key = _RANGES[kind]
        return Problem(
            pointer=pointer, message=f"must be {words} {context[key]:g}; it is {str(value)[:40]}", code="out_of_range"
        )
    if kind in _KINDS:
        return Problem(pointer=pointer, message=_wrong_kind(_KINDS[kind], value), code="wrong_type")
    if kind in ("string_too_short", "too_short"):
        return Problem(pointer=pointer, message=_too_short(kind, context), code="empty")
    if kind in ("string_too_long", "too_long"):
        unit = "characters" if kind == "string_too_long" else "entries"
        return Problem(
            pointer=pointer, message=f"has more than {context['max_length']:,} {unit}; shorten it", code="too_large"
        )
    if kind == "string_pattern_mismatch":
        return Problem(pointer=pointer, message=_bad_format(name, context["pattern"], owner), code="bad_format")
    return Problem(pointer=pointer, message=details["msg"], code="invalid")


def _unknown_key(name: str, owner: object) -> str:
    known = sorted(field.alias or key for key, field in owner.model_fields.items()) if _is_model(owner) else []  # type: ignore[attr-defined]
    return f'unknown key "{name[:60]}"; {suggestion(name, known)}'


def _unknown_value(value: object, context: dict[str, Any], owner: object) -> str:
    expected = str(context.get("expected") or context.get("expected_tags"))
    known = expected.replace("'", "").replace(" or ", ", ").split(", ")
    tag = context.get("tag", value)
    return f"{str(tag)[:60]!r} is not a choice here; {suggestion(str(tag), known)}"


def _tags(owner: object) -> str:
    return "one of " + ", ".join(_tag_of(choice) for choice in _choices(owner))


def _wrong_kind(wanted: str, value: object) -> str:
    hint = ""
    if wanted == "text" and isinstance(value, bool | int | float):
        hint = "; write it in quotes (YAML reads yes, no, on, off and bare numbers as something else)"
    elif wanted == "an object" and value is None:
        hint = "; fill it in or leave the key out"
    elif wanted == "a number" and isinstance(value, str):
        hint = "; write it without quotes"
    return f"must be {wanted}; this is {kind_of(value)}{hint}"


def _too_short(kind: str, context: dict[str, Any]) -> str:
    least = context["min_length"]
    if kind == "string_too_short":
        return "is empty; write something here" if least == 1 else f"needs at least {least} characters"
    return "is an empty list; add an entry or leave it out" if least == 1 else f"needs at least {least} entries"


def _bad_format(name: str, pattern: str, owner: object) -> str:
    if pattern == r"\S":
        return "is blank; write something here"
    if pattern == r"^\S+$":
        return "holds a space or a line break; write the name as your vendor lists it, without"
    if name == "api_key":
        return (
            "takes the id of a stored teacher key (tk_...), never the key itself: store the key, then put its id here"
        )
    return f"has the wrong form: {_description(owner, name)} (pattern {pattern})"


def _description(owner: object, name: str) -> str:
    if not _is_model(owner):
        return "an entry"
    for key, field in owner.model_fields.items():  # type: ignore[attr-defined]
        if name in (key, field.alias):
            return (field.description or name).rstrip(".")
    return name


def _locate(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, object]:
    """The JSON pointer of pydantic's `loc`, which names union branches too, and the model (or annotation) that the
    last step belongs to.
    """
    pointer, here = "", model  # type: tuple[str, Any]
    owner: Any = model
    for part in loc:
        if _is_plain_union(here):  # a number or a word: which of the two it was meant to be is no place
            continue
        choices = _choices(here)
        if choices and part in [_tag_of(choice) for choice in choices]:
            here = owner = next(choice for choice in choices if _tag_of(choice) == part)
            continue
        if _is_model(here):
            owner = here
            here = next((f.annotation for key, f in here.model_fields.items() if part in (key, f.alias)), None)
        elif get_origin(_bare(here)) is list:
            owner = here = get_args(_bare(here))[0]
        pointer = join(pointer, part)
    return pointer, here if _choices(here) else owner


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _bare(annotation: Any) -> Any:
    """The annotation without Annotated and `| None`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [arg for arg in get_args(annotation) if arg is not type(None)]
        if len(rest) == 1:
            return _bare(rest[0])
    return annotation


def _is_plain_union(annotation: Any) -> bool:
    bare = _bare(annotation)
    return get_origin(bare) in (Union, types.UnionType) and not any(_is_model(arg) for arg in get_args(bare))


def _choices(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The models of a tagged union, else nothing."""
    bare = _bare(annotation)
    if get_origin(bare) in (Union, types.UnionType) and all(_is_model(arg) for arg in get_args(bare)):
        return get_args(bare)
    return ()


def _tag_of(model: type[BaseModel]) -> str:
    for field in model.model_fields.values():
        if get_origin(field.annotation) is Literal:
            return str(get_args(field.annotation)[0])
    return ""
