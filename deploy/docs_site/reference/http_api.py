"""The pages of the HTTP API, from docs/openapi.json: one for each group of addresses, and one of all shapes."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.docs_site.links import anchor_of
from deploy.docs_site.reference.schema_tables import cell, fields_table, type_words

METHODS = ("get", "post", "put", "patch", "delete")
# a page and the tags on it; a tag that stands nowhere gets a page of its own
GROUPS = {
    "compiles": ("Compiles and specs", ("compiles", "specs", "uploads", "teacher_keys", "teacher_prices")),
    "artifacts": ("Artifacts", ("artifacts",)),
    "serving": ("Deployments and chats", ("deployments", "chat", "completions", "models")),
    "drafts": ("Drafts", ("drafts",)),
    "select": ("Selections", ("select",)),
    "registry": ("Recipe registry", ("registry",)),
    "webhooks": ("Webhooks", ("webhook_endpoints", "webhook_deliveries", "webhook_events")),
    "money": (
        "Usage, budgets and bills",
        ("usage", "usage.csv", "bills", "invoices", "budgets", "billing", "account", "plans"),
    ),
    "team": ("Team and keys", ("tenant", "members", "invitations", "api_keys", "audit_log")),
}
SHAPES = "shapes"
Operation = Mapping[str, Any]


def api_pages(document_file: Path) -> dict[str, str]:
    """Markdown by the name of its page."""
    document = json.loads(document_file.read_text(encoding="utf-8"))
    operations: dict[str, list[tuple[str, str, Operation]]] = {}
    page_of = {tag: page for page, (_, tags) in GROUPS.items() for tag in tags}
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                tag = methods[method]["tags"][0]
                operations.setdefault(page_of.get(tag, tag), []).append((path, method, methods[method]))
    pages = {page: _group_page(page, group) for page, group in operations.items()}
    return pages | {SHAPES: _shapes_page(document["components"]["schemas"])}


def _group_page(page: str, operations: list[tuple[str, str, Operation]]) -> str:
    title = GROUPS[page][0] if page in GROUPS else page.replace("_", " ").capitalize()
    head = (
        f"# HTTP API: {title}\n\nEvery request carries `Authorization: Bearer YOUR-KEY` unless it says otherwise; what"
        " is refused is answered as [a problem](../../errors.md).\n"
    )
    return head + "".join(_operation(path, method, operation) for path, method, operation in operations)


def _operation(path: str, method: str, operation: Operation) -> str:
    parts = [f"\n## {method.upper()} {path} {{: #{operation['operationId']} }}\n\n{_prose(operation)}\n"]
    if operation.get("security") == [{}] or operation.get("security") == []:
        parts.append("\nNeeds no key.\n")
    parts += _parameters(operation)
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"\nBody (`{kind}`): {type_words(content.get('schema', {}), _link)}.\n")
    answers = list(_answers(operation))
    return "".join(parts + (["\n| status | answer |\n|---|---|\n", *answers] if answers else []))


def _prose(operation: Operation) -> str:
    return re.sub(r"<(?=\w)", "&lt;", operation.get("description", operation.get("summary", "")))


def _parameters(operation: Operation) -> list[str]:
    rows = [
        f"| `{one['name']}` | {one['in']} | {type_words(one.get('schema', {}), _link)} |"
        f" {cell(one.get('description', ''))}{' **Required.**' if one.get('required') else ''} |\n"
        for one in operation.get("parameters", ())
    ]
    return ["\n| parameter | in | type | |\n|---|---|---|---|\n", *rows] if rows else []


def _answers(operation: Operation) -> Iterator[str]:
    for status, answer in operation["responses"].items():
        if status != "default":
            shapes = [type_words(body.get("schema", {}), _link) for body in answer.get("content", {}).values()]
            yield f"| {status} | {cell(' or '.join(shapes) or answer.get('description') or 'nothing')} |\n"


def _shapes_page(schemas: Mapping[str, Any]) -> str:
    parts = ["# HTTP API: shapes\n\nThe objects that requests and answers consist of.\n"]
    for name, schema in sorted(schemas.items()):
        about = re.sub(r"<(?=\w)", "&lt;", schema.get("description", ""))
        parts.append(f"\n## {name}\n\n{about}\n\n{fields_table(schema, _link)}")
    return "".join(parts)


def _link(name: str) -> str:
    return f"[{name}]({SHAPES}.md#{anchor_of(name)})"
