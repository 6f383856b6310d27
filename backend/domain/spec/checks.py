"""The checks on an answer that a spec may list: what makes a json or text answer good besides its form."""

from typing import Annotated, Literal

from pydantic import Field

from backend.domain.spec.fields import Part, Text


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
