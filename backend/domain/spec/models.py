"""A whole task spec. The published JSON Schema is generated from here and from the parts it imports, so every field
carries its description and an example. What joins two fields is in `rules`; everybody else imports these names
from `parsing`.
"""

from pydantic import Field

from backend.domain.cost_tags import MOST_TAGS, NAME_PATTERN, VALUE_PATTERN
from backend.domain.jobs.runner_jobs import BASE_NAME
from backend.domain.spec.fields import MAX_SLICES, Part, Slug
from backend.domain.spec.inputs import Captures, Examples, SliceSpec, VerifierSpec
from backend.domain.spec.outputs import Output
from backend.domain.spec.teacher import DraftCache, Sampling, Teacher
from backend.domain.spec.training import AnyPlan, Budget, Evaluation, Gate, Plan, Recipes, Train


class Spec(Part):
    """A kolm task spec, version 1."""

    name: Slug = Field(
        description="Name of the task: lower-case letters, digits and hyphens.", examples=["refund-router"]
    )
    task: str = Field(
        min_length=1,
        max_length=4000,
        pattern=r"\S",
        description="What the model is to do, in your words.",
        examples=["Does the customer ask for money back?"],
    )
    family: Slug = Field(
        default_factory=lambda fields: str(fields.get("name", "")),
        description="Tasks of one family share a draft cache; the name when left out.",
        examples=["refund-router"],
    )
    output: Output = Field(
        description="What an answer is.",
        examples=[{"type": "label", "labels": [{"name": "refund"}, {"name": "other"}]}],
    )
    slices: list[SliceSpec] = Field(
        default_factory=list,
        max_length=MAX_SLICES,
        description="Parts of the input space; left out, one per label (of a json or text task one for all), or the "
        "captures alone where there are some.",
        examples=[[{"name": "clear", "share": 0.6}, {"name": "edge", "share": 0.4}]],
    )
    examples: Examples = Field(description="Gold pairs.", examples=[{"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}])
    captures: Captures | None = Field(
        default=None, description="Real inputs without answers.", examples=[{"inline": ["where is my refund"]}]
    )
    verifiers: list[VerifierSpec] = Field(
        default_factory=list,
        max_length=50,
        description="Checks that score a candidate; without any that ranks, by its form and its slice.",
        examples=[[{"kind": "length", "min_chars": 8}]],
    )
    teacher: Teacher = Field(
        description="The large model.", examples=[{"provider": "grammar", "model": "kolm-grammar-1"}]
    )
    sampling: Sampling = Field(
        default_factory=Sampling,
        description="How many candidates, and which are kept.",
        examples=[{"n_candidates": 12}],
    )
    plan: AnyPlan = Field(
        default_factory=Plan,
        description="How much is labelled: auto, fixed, or with a point's worth.",
        examples=["auto"],
    )
    embedder: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=BASE_NAME,
        description="The encoder that places texts, for clusters, selection and the draft cache: one that this "
        "installation holds. null: its default.",
        examples=["intfloat/multilingual-e5-small"],
    )
    draft_cache: DraftCache = Field(
        default_factory=DraftCache, description="The draft cache.", examples=[{"enabled": True}]
    )
    train: Train = Field(default_factory=Train, description="The distillation.", examples=[{"rank": 8}])
    recipes: Recipes = Field(
        default_factory=Recipes, description="Recipe pack and rules.", examples=[{"enabled": True}]
    )
    evaluation: Evaluation = Field(
        default_factory=Evaluation, description="The evaluation.", examples=[{"teacher_rows": 100}]
    )
    gate: Gate = Field(default_factory=Gate, description="The gate.", examples=[{"accuracy_lower": 0.8}])
    budget: Budget = Field(default_factory=Budget, description="The budget.", examples=[{"usd": 5.0}])
    tags: dict[str, str] = Field(
        default_factory=dict,
        description=f"Cost tags, at most {MOST_TAGS}: what this compile uses is on the bill under them, and under "
        "those of the API key that submitted it. Where both have a name, this value counts.",
        examples=[{"team": "search", "project": "router"}],
        json_schema_extra={
            "maxProperties": MOST_TAGS,
            "propertyNames": {"pattern": NAME_PATTERN},
            "additionalProperties": {"type": "string", "pattern": VALUE_PATTERN},
        },
    )
