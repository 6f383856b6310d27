"""The task spec: the one document a customer writes. The API, the CLI and the workers read it with `parse_spec`, and
nothing else.

A `Spec` that exists is valid. The fields are in `models` and the files of its parts, rules that join two fields
(shares that sum, K <= N) in `rules`, those of answers and gold in `answer_rules`, the wording of what is wrong in
`problems`. Text comes in parsed from YAML or JSON, as plain objects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from backend.domain.errors import InvalidSpec, Problem
from backend.domain.spec.answer_rules import gold_problems
from backend.domain.spec.defaults import (
    answer_max_tokens,
    default_k_select,
    effective_slices,
    first_votes,
    judge_name,
    judge_of,
    judged_by,
    label_max_tokens,
    label_names,
    most_votes,
    n_distilled,
    reward_of,
    rewarded_by,
    slice_sizes,
    target_shares,
    text_verifiers,
    votes_as_needed,
)
from backend.domain.spec.fields import MAX_TEXT_CHARS
from backend.domain.spec.inputs import Example, SliceSpec, TextVerifier
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import (
    ContainsCheck,
    CopiedCheck,
    ExcludesCheck,
    JsonOutput,
    LabelOutput,
    LengthCheck,
    OutputCheck,
    PythonCheck,
    RegexCheck,
    TextOutput,
)
from backend.domain.spec.problems import MAX_SHOWN, document_problems, problems_of
from backend.domain.spec.rules import rule_problems
from backend.domain.spec.teacher import DeclaredPrice, Teacher

__all__ = [
    "MAX_TEXT_CHARS",
    "ContainsCheck",
    "CopiedCheck",
    "DeclaredPrice",
    "Example",
    "ExcludesCheck",
    "JsonOutput",
    "LabelOutput",
    "LengthCheck",
    "OutputCheck",
    "PythonCheck",
    "RegexCheck",
    "SliceSpec",
    "Spec",
    "Teacher",
    "TextOutput",
    "TextVerifier",
    "answer_max_tokens",
    "canonical_spec",
    "check_gold",
    "default_k_select",
    "effective_slices",
    "first_votes",
    "judge_name",
    "judge_of",
    "judged_by",
    "label_max_tokens",
    "label_names",
    "most_votes",
    "n_distilled",
    "parse_spec",
    "read_stored_spec",
    "reward_of",
    "rewarded_by",
    "slice_sizes",
    "spec_json_schema",
    "target_shares",
    "text_verifiers",
    "votes_as_needed",
]

SCHEMA_ID = "https://kolm.dev/schemas/spec-1.json"


def parse_spec(data: object) -> Spec:
    """The spec in `data` (parsed YAML or JSON). Raises InvalidSpec with up to 50 problems, each at its JSON pointer."""
    problems = document_problems(data)
    if problems:
        raise _invalid(problems)
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        raise _invalid(problems_of(error, Spec)) from None
    problems = rule_problems(spec)
    if spec.examples.upload is None:
        problems += gold_problems(spec, spec.examples.inline)
    if problems:
        raise _invalid(problems)
    return spec


def read_stored_spec(stored: Mapping[str, Any]) -> Spec:
    """The spec of a stored row, meaning what it meant when it was stored. Raises InvalidSpec, as `parse_spec`.

    The release before wrote no `plan`: K was fixed. Nor did it write `sampling.balance`: k_distill null was half of the
    pairs (with method all, all of them), and pairs off the declared shares were dropped.
    """
    stored = {"plan": "fixed"} | dict(stored)
    sampling = stored.get("sampling")
    if not isinstance(sampling, dict) or "balance" in sampling:
        return parse_spec(stored)
    before: dict[str, Any] = {"balance": "drop"}
    if sampling.get("k_distill") is None and sampling.get("method") != "all":
        before["k_distill"] = "half"
    return parse_spec({**stored, "sampling": sampling | before})


def check_gold(spec: Spec, examples: Sequence[Example]) -> None:
    """Raise InvalidSpec unless `examples` (the inline ones, then the uploaded ones) can carry this spec's evaluation.

    `parse_spec` has done this for a spec without an upload.
    """
    problems = gold_problems(spec, examples)
    if problems:
        raise _invalid(problems)


def _invalid(problems: Sequence[Problem]) -> InvalidSpec:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidSpec(
        f"The spec is not valid: {first.pointer or 'document'}: {first.message}{more}",
        problems=tuple(problems[:MAX_SHOWN]),
    )


def canonical_spec(spec: Spec) -> dict[str, Any]:
    """The spec as plain JSON with every default written out; `parse_spec` gives the same spec back."""
    return spec.model_dump(mode="json", by_alias=True)


def spec_json_schema() -> dict[str, Any]:
    """The published JSON Schema (2020-12)."""
    schema = Spec.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **schema,
        "title": "kolm task spec",
    }
