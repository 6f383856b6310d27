"""docs/events.md is the catalogue of the event stream: every type that the source appends, with every field of it, and
none besides."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.domain.lifecycle import TERMINAL

ROOT = Path(__file__).parent.parent
SOURCE = sorted(path for part in ("backend", "workers") for path in (ROOT / part).rglob("*.py"))
PAGE = (ROOT / "docs" / "events.md").read_text()
ENTRIES = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
OF_THE_STREAM = {"reconnect"}  # written by the stream itself, no row of a compile
ADDED_BY_WARN = {"code", "message"}


def fields_of(entry: str) -> list[str]:
    return [name for name in re.findall(r"^\| (\w+) \|", entry, re.MULTILINE) if name != "field"]


def example_of(entry: str) -> dict[str, object]:
    (text,) = re.findall(r"^```json\n(.*?)^```", entry, re.MULTILINE | re.DOTALL)
    return json.loads(text)


def appended() -> dict[str, set[str]]:
    """{type: the fields that the source writes}."""
    found: dict[str, set[str]] = defaultdict(set)
    for text in [path.read_text() for path in SOURCE]:
        if "append_event(" not in text and ".warn(" not in text:
            continue
        tree = ast.parse(text)
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
                match call.func:
                    case ast.Name(id="append_event"):
                        _, _, type_, data = call.args
                        for name in types_in(type_):
                            found[name] |= keys_in(data, function, tree)
                    case ast.Attribute(attr="warn", value=ast.Name(id="run")):
                        found["warning"] |= ADDED_BY_WARN | {keyword.arg for keyword in call.keywords if keyword.arg}
    return found


def types_in(node: ast.expr) -> set[str]:
    match node:
        case ast.Constant(value=str() as name):
            return {name}
        case ast.JoinedStr(values=[ast.Constant(value="compile."), ast.FormattedValue()]):
            return {f"compile.{status}" for status in TERMINAL}  # `move` appends it for ends alone
    raise AssertionError(f"the type of an event is written out: {ast.unparse(node)}")


def keys_in(data: ast.expr, function: ast.FunctionDef, tree: ast.Module) -> set[str]:
    """The keys of a dictionary: written here, gathered in a variable, or made by a function of the module."""
    match data:
        case ast.Dict(keys=keys):
            return {key.value for key in keys if isinstance(key, ast.Constant)}
        case ast.Name(id=name):
            return set(gathered(name, function))
        case ast.Call(func=ast.Name(id=name)):
            (made,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
            return set(gathered("data", made))
    raise AssertionError(f"the data of an event can be read in the source: {ast.unparse(data)}")


def gathered(name: str, function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=to)], value=ast.Dict(keys=keys)) if to == name:
                yield from (key.value for key in keys if isinstance(key, ast.Constant))
            case ast.AnnAssign(target=ast.Name(id=to), value=ast.Dict(keys=keys)) if to == name:
                yield from (key.value for key in keys if isinstance(key, ast.Constant))
            case ast.AugAssign(target=ast.Name(id=to), value=ast.Dict(keys=keys)) if to == name:
                yield from (key.value for key in keys if isinstance(key, ast.Constant))
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=to), slice=ast.Constant(value=key))]) if (
                to == name
            ):
                yield key


APPENDED = appended()


def test_every_type_that_the_source_appends_is_in_the_catalogue_and_no_other():
    assert set(ENTRIES) == set(APPENDED) | OF_THE_STREAM


@pytest.mark.parametrize("name", sorted(APPENDED))
def test_every_field_of_a_type_is_described(name):
    described = fields_of(ENTRIES[name])
    assert len(described) == len(set(described))
    written = APPENDED[name]
    if name.startswith("compile.") and name not in ("compile.status", "compile.failed", "compile.expired"):
        written -= {"code", "message", "step"}  # of a failure
    assert set(described) == written


@pytest.mark.parametrize("name", sorted(APPENDED))
def test_the_example_of_a_type_is_an_event_of_it(name):
    example = example_of(ENTRIES[name])
    assert set(example) == {"object", "type", "seq", "data", "created_at"}
    assert (example["object"], example["type"]) == ("event", name)
    fields = set(fields_of(ENTRIES[name]))
    if name == "warning":  # beside these, each code has fields of its own
        assert ADDED_BY_WARN <= set(example["data"]) <= fields
    else:
        assert set(example["data"]) == fields
