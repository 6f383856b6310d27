"""The outputs of a task: one of a closed set of labels, a JSON value, or free text; and the checks that make a json or
text answer good besides its form."""

from typing import Annotated, Any, Literal

from pydantic import Field

from backend.domain.spec.fields import MAX_LABELS, Part, Text


class _Check(Part):
    name: str = Field(
        default="",
        max_length=80,
        pattern=r"^[^\r\n\t|]*$",
        description="What reports call this check; its kind and field when left out.",
        examples=["total is positive"],
    )
    field: str | None = Field(
        default=None,
        max_length=200,
        pattern=r"^(/[^/]+)+$",
        description="JSON pointer to the part of a json answer that is checked (each element of a list with *); null: "
        "the whole answer.",
        examples=["/total"],
    )


class LengthCheck(_Check):
    """The answer's length in characters."""

    kind: Literal["length"] = Field(description="The kind of check.", examples=["length"])
    min_chars: int = Field(default=0, ge=0, le=20_000, description="Shortest answer that passes.", examples=[1])
    max_chars: int = Field(default=20_000, ge=1, le=20_000, description="Longest answer that passes.", examples=[300])


class RegexCheck(_Check):
    """A regular expression found anywhere in the first 1,000 characters (Python syntax; anchor with ^ and $)."""

    kind: Literal["regex"] = Field(description="The kind of check.", examples=["regex"])
    pattern: str = Field(
        min_length=1,
        description="Pattern of at most 500 characters; no look-ahead or look-behind, no back-references.",
        examples=[r"^[A-Z]{2}-[0-9]+$"],
    )


class ContainsCheck(_Check):
    """The answer contains one of the phrases, ignoring case."""

    kind: Literal["contains"] = Field(description="The kind of check.", examples=["contains"])
    any_of: list[Text] = Field(min_length=1, max_length=200, description="Phrases.", examples=[["kind regards"]])


class ExcludesCheck(_Check):
    """The answer contains none of the phrases, ignoring case."""

    kind: Literal["excludes"] = Field(description="The kind of check.", examples=["excludes"])
    any_of: list[Text] = Field(min_length=1, max_length=200, description="Phrases.", examples=[["as an AI"]])


class CopiedCheck(_Check):
    """The text is a part of the input, ignoring case and runs of white space: an extracted value that was not made
    up."""

    kind: Literal["copied"] = Field(description="The kind of check.", examples=["copied"])


class PythonCheck(_Check):
    """A function of yours, `def check(input, output)`, that returns whether an answer is good. It runs in a sandbox
    without network or files; `output` is a str, or of a json task the decoded value.
    """

    kind: Literal["python"] = Field(description="The kind of check.", examples=["python"])
    source: str = Field(
        min_length=1,
        max_length=20_000,
        description="Python source that defines `check(input, output)`.",
        examples=["def check(input, output):\n    return len(output) < len(input)"],
    )


OutputCheck = Annotated[
    LengthCheck | RegexCheck | ContainsCheck | ExcludesCheck | CopiedCheck | PythonCheck, Field(discriminator="kind")
]


def check_name(check: OutputCheck) -> str:
    """Return what reports call a check."""
    return check.name or (f"{check.kind} {check.field}" if check.field else check.kind)


class Label(Part):
    """One answer of a label task."""

    # the prompts join labels with " | " and hold one a line
    name: str = Field(
        min_length=1,
        max_length=80,
        pattern=r"^[^\s|]([^|\r\n\t\v\f]*[^\s|])?$",
        description="The label as the model answers it: one line, no '|', no space at either end.",
        examples=["refund"],
    )
    description: str = Field(
        default="",
        max_length=1000,
        description="What the label means, for the teacher.",
        examples=["The customer asks for money back."],
    )
    share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Wanted share of the training pairs. Give it for every label, summing to 1, or for none.",
        examples=[0.4],
    )


class Abstain(Part):
    """The model says that it is unsure where its confidence is below a threshold; its label stays beside that."""

    accuracy: float = Field(
        ge=0.5,
        le=0.999,
        description="Wanted accuracy of the answers that are not unsure. The threshold is chosen on training pairs "
        "that are held back for calibration, never on held-out gold, which measures what it comes to.",
        examples=[0.95],
    )


class LabelOutput(Part):
    """The task answers with one of a closed set of labels."""

    type: Literal["label"] = Field(description="The kind of answer.", examples=["label"])
    labels: list[Label] = Field(
        min_length=2,
        max_length=MAX_LABELS,
        description="The closed set of answers.",
        examples=[[{"name": "refund"}, {"name": "other"}]],
    )
    abstain: Abstain | None = Field(
        default=None,
        description="When an answer is unsure; null: never. For tasks on an encoder.",
        examples=[{"accuracy": 0.95}],
    )


class JsonOutput(Part):
    """The task answers with a JSON value that fits a schema."""

    type: Literal["json"] = Field(description="The kind of answer.", examples=["json"])
    answer_schema: dict[str, Any] = Field(
        alias="schema",
        description="JSON Schema of the answer.",
        examples=[{"type": "object", "properties": {"total": {"type": "number"}}}],
    )
    accuracy: Literal["field_f1", "exact"] = Field(
        default="field_f1",
        description="What accuracy is on held-out gold: the mean F1 of the answers' fields, or the share of answers "
        "that are equal to gold as a whole.",
        examples=["field_f1"],
    )
    checks: list[OutputCheck] = Field(
        default_factory=list,
        max_length=20,
        description="What every answer must pass besides the schema; a teacher's answer that fails one is no vote.",
        examples=[[{"kind": "copied", "field": "/order"}]],
    )
    max_tokens: int = Field(default=256, ge=8, le=4096, description="Longest answer, in tokens.", examples=[256])


class TextOutput(Part):
    """The task answers with free text."""

    type: Literal["text"] = Field(description="The kind of answer.", examples=["text"])
    max_chars: int = Field(default=2000, ge=1, le=20_000, description="Longest answer.", examples=[400])
    accuracy: Literal["judge", "checks", "exact"] = Field(
        default="judge",
        description="What accuracy is on held-out gold: the share of answers that the teacher prefers to gold or finds "
        "as good, asked twice with the places swapped; the share that passes every check; or, of texts of fixed forms, "
        "the share that is gold's text to the letter.",
        examples=["judge"],
    )
    checks: list[OutputCheck] = Field(
        default_factory=list,
        max_length=20,
        description="What every answer must pass; a teacher's answer that fails one is not trained on.",
        examples=[[{"kind": "length", "max_chars": 300}]],
    )
    max_tokens: int = Field(default=512, ge=8, le=4096, description="Longest answer, in tokens.", examples=[512])


Output = Annotated[LabelOutput | JsonOutput | TextOutput, Field(discriminator="type")]
