"""The sources of inputs: slices to fill, gold examples, captures; and the verifiers that score a candidate input."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from backend.domain.spec.fields import MAX_INLINE, MAX_TEXT_CHARS, Part, Text, UploadId
from backend.domain.spec.gold import SIDES
from backend.domain.spec.reward import RewardVerifier


class SliceSpec(Part):
    """A part of the input space that deserves its own candidates."""

    name: str = Field(
        min_length=1,
        max_length=80,
        pattern=r"^[^\s|]([^|\r\n\t\v\f]*[^\s|])?$",
        description="Name of the slice, unique in the spec.",
        examples=["angry-but-not-asking"],
    )
    share: float = Field(
        gt=0,
        le=1,
        description="Share of the candidates, of those that are kept and of the pairs that train; the shares of all "
        "slices sum to 1.",
        examples=[0.25],
    )
    hint: str = Field(
        default="",
        max_length=1000,
        description="What inputs of this slice look like, for the teacher.",
        examples=["Complains, wants no money."],
    )
    exemplars: list[Text] = Field(
        default_factory=list,
        max_length=20,
        description="Inputs of this kind, shown to the teacher.",
        examples=[["Worst service ever."]],
    )
    label: str | None = Field(
        default=None,
        max_length=80,
        description="The label that most inputs of this slice should get, if one.",
        examples=["other"],
    )


def _answer_text(value: object) -> object:
    """A value that is not a text is kept as its canonical JSON text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


Answer = Annotated[str, BeforeValidator(_answer_text, json_schema_input_type=Any)]


Side = Annotated[Literal["train", "heldout", "test"], AfterValidator(SIDES.__getitem__)]


class Example(Part):
    """One gold pair: an input with its right answer."""

    input: Text = Field(description="The input.", examples=["I want my money back."])
    output: Answer = Field(
        min_length=1,
        max_length=20_000,
        description="The right answer: a label's name, a text, or of a json task the value itself (or its JSON text).",
        examples=["refund"],
    )
    group: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Examples of one group are never split between training and evaluation (one ticket, one customer).",
        examples=["ticket-4711"],
    )
    split: Side | None = Field(
        default=None,
        description='The side that you want it on: "train", or "heldout" ("test" is the same). Once any example says '
        "heldout, just those are held out and all others train. Where none does, those that say train train, and "
        "kolm holds out a part of the others.",
        examples=["heldout"],
    )


class Examples(Part):
    """Gold pairs: inline, or an upload of JSON lines with the same keys. Part of them is held out and decides the
    gate: a part that kolm draws, or the examples that say `"split": "heldout"`.
    """

    inline: list[Example] = Field(
        default_factory=list,
        max_length=MAX_INLINE,
        description="Gold pairs in the spec itself.",
        examples=[[{"input": "I want my money back.", "output": "refund"}]],
    )
    upload: UploadId | None = Field(
        default=None,
        description="Id or name of an upload with further gold pairs.",
        examples=["upl_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    holdout: float = Field(
        default=0.3,
        ge=0.2,
        le=1,
        description="Least share held out for the evaluation; never trained on, nor shown to the teacher before then. "
        "It is of the examples that name no split; where any says heldout, it holds for none.",
        examples=[0.3],
    )


class Captures(Part):
    """Real inputs without answers; they compete with the synthetic candidates for selection."""

    inline: list[Text] = Field(
        default_factory=list, max_length=MAX_INLINE, description="Inputs.", examples=[["where is my refund"]]
    )
    upload: UploadId | None = Field(
        default=None,
        description="Id or name of an upload of captures.",
        examples=["upl_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    max: int = Field(default=2000, ge=1, le=20_000, description="Most captures to take.", examples=[2000])


class _Verifier(Part):
    weight: float = Field(
        default=1.0, ge=0, le=100, description="Weight of this check in a candidate's score.", examples=[1.0]
    )
    gate: bool = Field(default=False, description="Whether failing this check drops the candidate.", examples=[True])


class LengthVerifier(_Verifier):
    """The candidate's length in characters."""

    kind: Literal["length"] = Field(description="The kind of check.", examples=["length"])
    min_chars: int = Field(default=1, ge=0, le=MAX_TEXT_CHARS, description="Shortest text that passes.", examples=[8])
    max_chars: int = Field(
        default=1000, ge=1, le=MAX_TEXT_CHARS, description="Longest text that passes.", examples=[300]
    )


class RegexVerifier(_Verifier):
    """A regular expression found anywhere in the first 1,000 characters of the candidate (Python syntax; anchor with
    ^ and $).
    """

    kind: Literal["regex"] = Field(description="The kind of check.", examples=["regex"])
    pattern: str = Field(
        min_length=1,
        description="Pattern of at most 500 characters; no look-ahead or look-behind, no back-references.",
        examples=["(?i)order"],
    )


class ContainsVerifier(_Verifier):
    """The candidate contains one of the phrases, ignoring case."""

    kind: Literal["contains"] = Field(description="The kind of check.", examples=["contains"])
    any_of: list[Text] = Field(
        min_length=1, max_length=200, description="Phrases.", examples=[["refund", "money back"]]
    )


class ExcludesVerifier(_Verifier):
    """The candidate contains none of the phrases, ignoring case."""

    kind: Literal["excludes"] = Field(description="The kind of check.", examples=["excludes"])
    any_of: list[Text] = Field(min_length=1, max_length=200, description="Phrases.", examples=[["as an AI"]])


class SimilarityVerifier(_Verifier):
    """Closeness of the candidate's embedding to its slice."""

    kind: Literal["similarity"] = Field(description="The kind of check.", examples=["similarity"])


TextVerifier = LengthVerifier | RegexVerifier | ContainsVerifier | ExcludesVerifier | SimilarityVerifier
VerifierSpec = Annotated[TextVerifier | RewardVerifier, Field(discriminator="kind")]
