"""The page of `import kolm`, from the signatures and docstrings of its public names."""

import dataclasses
import inspect
import re
from collections.abc import Iterator

from gpu_runners import kolm

HEAD = """# `import kolm`, name by name

What is public in the Python client, from its docstrings. How it is used: [the Python client](../client.md).
"""


def client_page() -> str:
    client = kolm.Client("key", "http://127.0.0.1:9")
    resources = {name: value for name, value in vars(client).items() if hasattr(value, "_get")}
    client.close()
    parts = [HEAD, _member("Client", kolm.Client)]
    for name, resource in sorted(resources.items()):
        parts.append(f"\n## client.{name}\n\n{_text(type(resource))}\n")
        parts += [_method(f"client.{name}.{method}", bound) for method, bound in _public_methods(resource)]
    rest = [name for name in kolm.__all__ if name != "Client" and callable(getattr(kolm, name))]
    return "".join(parts + [_member(name, getattr(kolm, name)) for name in rest])


def _member(name: str, value: object) -> str:
    if inspect.isclass(value):
        methods = [_method(f"{name}.{each}", bound) for each, bound in _public_methods(value)]
        is_made_by_users = not dataclasses.is_dataclass(value) and not issubclass(value, Exception)
        made = f"```python\n{name}{_signature(value)}\n```\n\n" if is_made_by_users else ""
        return f"\n## {name}\n\n{made}{_text(value)}\n{_fields(value)}" + "".join(methods)
    return f"\n## {name}\n\n```python\n{name}{_signature(value)}\n```\n\n{_text(value)}\n"


def _public_methods(owner: object) -> Iterator[tuple[str, object]]:
    for name, value in inspect.getmembers(owner, inspect.isroutine):
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("gpu_runners"):
            yield name, value


def _method(name: str, value: object) -> str:
    return f"\n### {name}\n\n```python\n{name.rsplit('.', 1)[1]}{_signature(value)}\n```\n\n{_text(value)}\n"


def _signature(value: object) -> str:
    signature = inspect.signature(value)  # type: ignore[arg-type] # of functions and classes alike
    kept = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    text = str(signature.replace(parameters=kept))
    return text.replace("gpu_runners.kolm.", "").replace("collections.abc.", "").replace("typing.", "")


def _fields(value: type) -> str:
    if not dataclasses.is_dataclass(value):
        return ""
    rows = [f"| `{field.name}` | `{_type(field.type)}` |" for field in dataclasses.fields(value) if field.name != "raw"]
    return "\n".join(["", "| field | type |", "|---|---|", *rows, ""]) if rows else ""


def _type(value: object) -> str:
    text = value.__name__ if inspect.isclass(value) and not hasattr(value, "__args__") else str(value)
    return (
        text.replace("gpu_runners.kolm.", "").replace("collections.abc.", "").replace("typing.", "").replace("|", "\\|")
    )


def _text(value: object) -> str:
    """The docstring with its examples as code; a generated one of a dataclass says nothing that the table does not."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and re.match(r"\w+\(.*\)( ->|$)", text):
        return ""
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        if line.startswith(">>>") and not is_code:
            lines += ["", "```pycon"]
            is_code = True
        if is_code and not line.strip():
            lines.append("```")
            is_code = False
        lines.append(line)
    return "\n".join(lines + (["```"] if is_code else []))
