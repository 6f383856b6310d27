"""The asyncio client, made from the sources of the other one: `python -m tests.gpu_runners.kolm.async_sources` writes
gpu_runners/kolm/asynchronous/. A method is written once, and is typed in both.

What asks over the wire becomes a coroutine and is awaited, and so is whatever calls it; files are read and written in a
thread; iterators become asynchronous iterators. Values, errors and pure functions are not copied but imported.
"""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "gpu_runners" / "kolm"  # not imported: what was made may be older than it
TARGET = SOURCE / "asynchronous"
# module -> what of it is copied
COPIED = {
    "transport": {"Transport"},
    "events": {"Lines", "Follower", "lines_of"},
    "resource": {"Resource"},
    "resources": {"Compiles", "Artifacts", "Drafts", "Uploads"},
    "deployments": {"Deployments", "Chats", "_chunks"},
    "account": {
        *("ApiKeys", "TeacherKeys", "Tenants", "Account", "Usage", "Bills", "Budgets", "Invoices", "Plans"),
        *("Members",),
    },
    "webhooks": {"WebhookEndpoints", "WebhookEvents", "WebhookDeliveries"},
    "client": {"Client"},
}
HOME_OF = {name: module for module, names in COPIED.items() for name in names}
WORDS = {
    "httpx.Client": "httpx.AsyncClient",
    "class Client": "class AsyncClient",
    ">>> client = Client(": ">>> client = AsyncClient(",
    "time.sleep": "asyncio.sleep",
    "sleep: Callable[[float], None]": "sleep: Callable[[float], Awaitable[None]]",
    "Iterable[bytes]": "AsyncIterable[bytes]",
    "Iterable[Event]": "AsyncIterable[Event]",
    "Iterator[": "AsyncIterator[",
    "Generator[": "AsyncGenerator[",
    "closing(": "aclosing(",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    ".iter_bytes": ".aiter_bytes",
    ".iter_lines": ".aiter_lines",
}
HEAD = """
import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable
from contextlib import aclosing
"""
AWAITED = {"_get", "_post", "_all", "send", "sleep", "_status", "_pause"}  # methods, wherever they are
AWAITED_BY = {
    ("http", "request"),
    ("uploads", "create"),
    ("uploads", "store"),
    ("_http", "close"),
    ("response", "read"),
    ("self", "close"),
}
THREADED = {"document_of", "files_of", "jsonl_of", "write_bytes"}  # read or write a disk: the loop goes on meanwhile
RENAMED = {("_http", "close"): "aclose", ("response", "read"): "aread"}
FLOWS = {"events", "_in_order", "_stream", "page", "_page", "read", "lines_of", "aiter_bytes", "aiter_lines", "_chunks",
         "_walk", "parts", "source"}  # fmt: skip


def modules() -> dict[str, str]:
    """File name -> text, formatted."""
    return {f"{module}.py": _formatted(_module(module)) for module in COPIED}


def _module(module: str) -> str:
    text = (SOURCE / f"{module}.py").read_text(encoding="utf-8")
    for old, new in WORDS.items():
        text = text.replace(old, new)
    tree = ast.parse(text)
    names = COPIED[module] | {f"Async{name}" for name in COPIED[module]}
    kept = [_converted(node) for node in tree.body if getattr(node, "name", None) in names]
    title = f'"""The asyncio face of {module}.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""'
    imports = [ast.unparse(node) for node in tree.body if _is_outer_import(node)]
    own = [f"from ..{module} import {name}" for name in _defined(tree) - names]
    return "\n".join(
        [title, HEAD, *imports, *_inner_imports(tree), *own, *("\n\n" + ast.unparse(node) for node in kept)]
    )


def _is_outer_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)


def _inner_imports(tree: ast.Module) -> list[str]:
    """Imports of the client's own modules: of the asynchronous one where the name is copied."""
    lines = []
    for node in (each for each in tree.body if isinstance(each, ast.ImportFrom) and each.level):
        for alias in node.names:
            home = "." if HOME_OF.get(alias.name) == node.module else ".."
            lines.append(f"from {home}{node.module} import {alias.name}")
    return lines


def _defined(tree: ast.Module) -> set[str]:
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _converted(node: ast.stmt) -> ast.stmt:
    """The class or function with its awaits: methods that call a coroutine of their own class are found in turns."""
    coroutines: set[str] = set()
    while True:
        made = _Converter(coroutines).visit(ast.parse(ast.unparse(node)).body[0])
        methods = made.body if isinstance(made, ast.ClassDef) else []
        found = {each.name for each in methods if isinstance(each, ast.AsyncFunctionDef) and not _yields(each)}
        if found == coroutines:
            return ast.fix_missing_locations(made)
        coroutines = found


def _yields(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Yield) for each in ast.walk(node))


class _Converter(ast.NodeTransformer):
    def __init__(self, coroutines: set[str]) -> None:
        self.coroutines = coroutines

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        is_async = any(isinstance(each, ast.Await | ast.AsyncFor | ast.AsyncWith) for each in ast.walk(node))
        if not (is_async or node.name in ("__aenter__", "__aexit__")):
            return node
        return ast.AsyncFunctionDef(**{name: getattr(node, name, None) for name in ast.AsyncFunctionDef._fields})

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "Pages":
            return node.args[0]
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in THREADED:
            return _in_a_thread(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        of, name = _owner(node.func), node.func.attr
        is_own = of == "self" and name in self.coroutines
        if not (name in AWAITED or (of, name) in AWAITED_BY or is_own):
            return node
        node.func.attr = RENAMED.get((of, name), name)
        return ast.Await(value=node)

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if not _flows(node.iter):
            return node
        return ast.AsyncFor(target=node.target, iter=node.iter, body=node.body, orelse=node.orelse)

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        return ast.AsyncWith(items=node.items, body=node.body)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """`yield from` there is none of in a coroutine."""
        self.generic_visit(node)
        if not isinstance(node.value, ast.YieldFrom):
            return node
        loop = ast.AsyncFor if _flows(node.value.value) else ast.For
        one = ast.Name(id="one")
        body: list[ast.stmt] = [ast.Expr(value=ast.Yield(value=one))]
        return loop(target=one, iter=node.value.value, body=body, orelse=[])


def _in_a_thread(node: ast.Call) -> ast.Await:
    to_thread = ast.Attribute(value=ast.Name(id="asyncio"), attr="to_thread")
    return ast.Await(value=ast.Call(func=to_thread, args=[node.func, *node.args], keywords=node.keywords))


def _owner(func: ast.Attribute) -> str:
    return getattr(func.value, "attr", None) or getattr(func.value, "id", "")


def _flows(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return getattr(value.func, "attr", getattr(value.func, "id", "")) in FLOWS
    return isinstance(value, ast.Name) and value.id in FLOWS


def _formatted(text: str) -> str:
    """As ruff leaves it: without the imports that nothing needs, and in the house's form."""
    name = str(TARGET / "made.py")
    for command in (["check", "--fix-only", "--quiet", "--select", "F401,I,UP034"], ["format", "--quiet"]):
        words = [sys.executable, "-m", "ruff", *command, "--stdin-filename", name, "-"]
        text = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for file, content in modules().items():
        (TARGET / file).write_text(content, encoding="utf-8")
