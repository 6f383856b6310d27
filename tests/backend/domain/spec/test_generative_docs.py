"""The specs that docs/generative.md and the examples show are specs."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend.domain.answers.json_schema_rules import _REFUSED, _RULES, ANNOTATIONS, FORMATS
from backend.domain.evaluation.gate_floors import FloorName
from backend.domain.spec.parsing import JsonOutput, TextOutput, parse_spec

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "generative.md").read_text()
SPECS: list[Any] = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize(("document", "kind"), list(zip(SPECS, (JsonOutput, TextOutput, TextOutput), strict=True)))
def test_the_specs_of_the_page_are_valid(document: Any, kind: type) -> None:
    assert isinstance(parse_spec(document).output, kind)


def test_the_page_names_every_keyword_format_and_floor() -> None:
    words = set(re.findall(r"[$\w-]+", PAGE))
    refused = set(_REFUSED) - {"then", "else", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties"}
    wanted = set(_RULES) | refused | ANNOTATIONS | set(FORMATS) | {name.value for name in FloorName}
    assert wanted - words - {"$dynamicRef", "$dynamicAnchor"} == set()
