"""docs/errors.md is what `doc_url` points at: it knows every code that can reach a customer, and none besides."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.urls import get_resolver
from rest_framework import serializers

from backend.rest.strict import StrictSerializer
from tests.code_collector import Found, collect, undecided

ROOT = Path(__file__).parent.parent
# The client and the commands pass on what the API said; their own codes are statuses of a process (docs/client.md).
CLIENT = {ROOT / "gpu_runners" / "kolm", ROOT / "gpu_runners" / "cli"}
SOURCE = sorted(
    path
    for part in ("backend", "workers", "gpu_runners")
    for path in (ROOT / part).rglob("*.py")
    if not CLIENT & set(path.parents)
)
PAGE = (ROOT / "docs" / "errors.md").read_text()
ENTRIES = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))

# Defaults of classes that are always raised with a code of their own.
NEVER_SHOWN = {"error", "job_failed"}
# What DRF's fields could say, and what the JSON reader and the time zone keep from happening.
NEVER_REACHED = {"date", "make_aware", "null_characters_not_allowed", "surrogate_characters_not_allowed"}
# DRF's exceptions that no code of ours raises.
OF_DRF = {"method_not_allowed", "unsupported_media_type"}
# Where the source passes on a code that somebody else decided; a new kind of expression here needs a look by a person.
PASSED_ON = {
    "str(error.get_codes())",  # of DRF's exceptions: OF_DRF and ours
    "str(refused.get_codes())",
    "getattr(detail, 'code', None)",  # of DRF's fields
}


def codes_of_fields() -> set[str]:
    """The codes of DRF's fields in the shapes that requests may have."""
    assert get_resolver().url_patterns, "imports every view, and with them the shapes"
    found: set[str] = set()
    fields: list[serializers.Field] = [shape() for shape in StrictSerializer.__subclasses__()]
    fields = [field for field in fields if type(field).__module__.startswith("backend.")]
    while fields:
        field = fields.pop()
        found |= set(field.error_messages) | {validator.code for validator in field.validators}
        fields += field.fields.values() if isinstance(field, serializers.Serializer) else []
        fields += [field.child] if hasattr(field, "child") else []
    return found - NEVER_REACHED


@pytest.fixture(scope="module")
def written() -> list[Found]:
    """Every code that the source writes out."""
    return collect(SOURCE)


@pytest.fixture(scope="module")
def known(written: list[Found]) -> set[str]:
    return {code.code for code in written} - NEVER_SHOWN | codes_of_fields() | OF_DRF


def test_every_code_of_the_source_has_an_entry(written, known):
    missing = sorted({f"{code.code} ({code.where})" for code in written if code.code not in NEVER_SHOWN | set(ENTRIES)})
    assert missing == []
    assert known - set(ENTRIES) == set()


def test_no_entry_is_stale(known):
    assert set(ENTRIES) - known == set()


def test_no_code_is_made_where_it_cannot_be_read():
    assert {found.code for found in undecided(SOURCE)} == PASSED_ON


@pytest.mark.parametrize("code", sorted(ENTRIES))
def test_an_entry_says_where_what_and_what_to_do(code):
    assert re.findall(r"^- (\w+): \S", ENTRIES[code], re.MULTILINE) == ["Where", "What", "Do"]
    assert re.fullmatch(r"[a-z0-9_]{2,64}", code)


def test_no_heading_is_there_twice():
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    assert len(headings) == len({heading.lower() for heading in headings})


def test_the_page_is_where_the_deployment_looks_for_it():
    assert settings.ROOT / "docs" == ROOT / "docs"


def test_the_collector_reads_every_way_to_name_a_code(tmp_path):
    (tmp_path / "a.py").write_text(
        'LATER = "of_a_constant"\n'
        'TABLE = {"x": ("of_a_table", "Message.")}\n'
        "class Broken(Exception):\n"
        '    code = "of_a_class"\n'
        "    def __init__(self, status, code): ...\n"
        "def wrong(pointer, code, message): ...\n"
        "def warn(self, code, message): ...\n"
        'wrong("/a", "of_a_place", "m")\n'
        'raise Broken(404, "of_a_constructor")\n'
        'Problem(code="of_a_keyword" if late else LATER)\n'
        'run.warn(*TABLE["x"])\n'
        'data = {"code": "of_a_dictionary", "message": "m"}\n'
        'message, code = "Text.", "of_a_pair"\n'
        'move(failure_code=error.code or "of_an_alternative")\n'
        "Problem(code=invent())\n"
    )
    expected = "a_constant a_table a_class a_place a_constructor a_keyword a_dictionary a_pair an_alternative"
    assert {found.code for found in collect([tmp_path / "a.py"])} == {f"of_{name}" for name in expected.split()}
    assert [found.code for found in undecided([tmp_path / "a.py"])] == ["invent()"]
