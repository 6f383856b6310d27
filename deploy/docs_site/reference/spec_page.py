"""The page of the spec, from the JSON Schema that `GET /v1/specs/schema` answers and by which specs are checked."""

from backend.domain.spec.parsing import spec_json_schema
from deploy.docs_site.links import anchor_of
from deploy.docs_site.reference.schema_tables import fields_table

HEAD = """# The spec, field by field

The same as a JSON Schema for editors and validators: `GET /v1/specs/schema`. What a spec looks like as a whole is on
[your first real compile](../first-compile.md#3-the-spec) and, for JSON and text, in
[generative tasks](../generative.md). A field without "required" can be left out.

## The document

"""


def spec_page() -> str:
    schema = spec_json_schema()
    parts = [HEAD, fields_table(schema, _link)]
    for name, one in sorted(schema["$defs"].items()):
        parts.append(f"\n## {name}\n\n{one.get('description', '')}\n\n{fields_table(one, _link)}")
    return "".join(parts)


def _link(name: str) -> str:
    return f"[{name}](#{anchor_of(name)})"
