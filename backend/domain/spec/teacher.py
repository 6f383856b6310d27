"""The teacher of a spec, what it costs, how it is sampled, and what is kept of what it wrote."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from backend.domain.selection.options import DEFAULT_LAMBDA, MAX_OVERCLUSTER
from backend.domain.spec.fields import PRICE_BOUNDS, Money, Part, TeacherKeyId, UploadId

DialectName = Literal[
    "openai-compatible",
    "openai-reasoning",
    "openai",
    "azure-openai",
    "anthropic",
    "gemini",
    "vertex",
    "mistral-reasoning",
    "mistral",
    "groq-reasoning",
    "groq",
    "deepseek",
    "together",
    "fireworks",
    "openrouter-breakpoints",
    "openrouter",
    "bedrock",
    "xai",
    "cerebras",
    "vllm",
    "sglang",
    "llama-server",
    "ollama",
    "lm-studio",
    "transformers",
]
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

SelectionMethod = Literal[
    "auto",
    "two_step",
    "top_k",
    "diverse",
    "dpp",
    "facility_location",
    "k_center",
    "representative",
    "random",
    "all",
]
KDistill = Annotated[
    Annotated[int, Field(ge=2, le=100_000), Tag("number")] | Annotated[Literal["half"], Tag("word")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "number"),
]


class DeclaredPrice(Part):
    """The prices of the teacher's vendor; needed for a model that this installation knows no price of."""

    input_usd_per_mtok: Money = Field(
        ge=0,
        le=10_000,
        json_schema_extra=PRICE_BOUNDS,
        description="US dollars per million input tokens.",
        examples=[0.15],
    )
    output_usd_per_mtok: Money = Field(
        ge=0,
        le=10_000,
        json_schema_extra=PRICE_BOUNDS,
        description="US dollars per million output tokens.",
        examples=[0.6],
    )
    cached_input_usd_per_mtok: Money | None = Field(
        default=None,
        ge=0,
        le=10_000,
        json_schema_extra=PRICE_BOUNDS,
        description="US dollars per million input tokens read from the vendor's prompt cache; the input price if null.",
        examples=[0.015],
    )
    cache_write_usd_per_mtok: Money | None = Field(
        default=None,
        ge=0,
        le=10_000,
        json_schema_extra=PRICE_BOUNDS,
        description="US dollars per million input tokens written to that cache; the input price if null.",
        examples=[0.1875],
    )
    batch_discount: Money | None = Field(
        default=None,
        ge=0,
        lt=1,
        json_schema_extra={"minimum": 0, "exclusiveMaximum": 1},
        description="Share that the vendor takes off in a batch; as its batch endpoint has it if null.",
        examples=[0.5],
    )


class Teacher(Part):
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
        description="Id or name of the uploaded recording that replay answers from.",
        examples=["upl_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    price: DeclaredPrice | None = Field(
        default=None,
        description="Your price for this model; goes before every price table.",
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
    mode: Literal["live", "batch"] = Field(
        default="live",
        description="batch: synthesis and labeling send their calls to the vendor's batch endpoint, for less; each "
        "batch may take a day.",
        examples=["batch"],
    )
    concurrency: int = Field(default=4, ge=1, le=32, description="Most calls at the same time.", examples=[4])
    dialect: DialectName | None = Field(
        default=None,
        description="How the endpoint is spoken to; null: by its address, and what it refuses is learnt.",
        examples=["ollama"],
    )
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = Field(
        default=None,
        description="How long a reasoning model thinks; null: as its vendor has it.",
        examples=["low"],
    )
    thought_tokens: int | None = Field(
        default=None,
        ge=0,
        le=65_536,
        description="Tokens left for thoughts in an answer; null: by the effort, 4096 if the model is known to think.",
        examples=[2048],
    )
    fallback_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^\S+$",
        description="Model at the same provider to use after the first collapses twice; `price` is for both.",
        examples=["kolm-grammar-1"],
    )


class Sampling(Part):
    """The number of candidates, the selection of those that are kept, and their labelling."""

    n_candidates: int = Field(
        default=12,
        ge=1,
        le=1000,
        description="N: candidates asked for per slice, on the mean; a slice's share says how many of them all are its "
        "own.",
        examples=[12],
    )
    candidate_max_tokens: int = Field(
        default=500,
        ge=16,
        le=1000,
        description="Longest candidate, in tokens; one that reaches it is cut, and none.",
        examples=[500],
    )
    k_select: int | None = Field(
        default=None, ge=1, le=20_000, description="K kept per slice, on the mean; null: ceil(N/3).", examples=[4]
    )
    k_distill: KDistill | None = Field(
        default=None,
        description="Labelled pairs kept for training; null: all of them; half: the half that two_step keeps.",
        examples=[60],
    )
    balance: Literal["weight", "report", "drop"] = Field(
        default="weight",
        description="What to do where labels are off the declared shares: weight the pairs, only say so, or drop some.",
        examples=["weight"],
    )
    method: SelectionMethod = Field(
        default="auto",
        description="Selection: by what the pool shows (auto), or one method; random and all are baselines.",
        examples=["auto"],
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
    label_samples: int | None = Field(
        default=None,
        ge=1,
        le=32,
        description="Answers asked for per label; they vote. null: of a label task one, and more, 5 at most, where the "
        "label is unsure; of json and text 5.",
        examples=[5],
    )
    min_agreement: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="Least share of the votes for the winning label, or with label_samples null its least probability; "
        "below, the input is dropped.",
        examples=[0.6],
    )
    temperature_inputs: float = Field(
        default=1.0, ge=0, le=2, description="Temperature of the candidates.", examples=[1.0]
    )
    temperature_labels: float = Field(default=0.2, ge=0, le=2, description="Temperature of the labels.", examples=[0.2])
    seed: int = Field(
        default=7, ge=0, le=2**31 - 1, description="Seed of everything random in this compile.", examples=[7]
    )


class DraftJudge(Part):
    """A cheaper model that verifies drafts in the teacher's place, while the teacher's audits find no fault with it."""

    model: str = Field(
        min_length=1,
        max_length=200,
        pattern=r"^\S+$",
        description="The model's name.",
        examples=["gpt-5-nano"],
    )
    base_url: str | None = Field(
        default=None,
        max_length=2000,
        description="The endpoint's address up to /v1; null: the teacher's endpoint, with its key.",
        examples=["https://judge.example.com/v1"],
    )
    api_key: TeacherKeyId | None = Field(
        default=None,
        description="Id of a stored teacher key for base_url, never the key itself.",
        examples=["tk_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    price: DeclaredPrice | None = Field(
        default=None,
        description="Your price for this model; goes before every price table.",
        examples=[{"input_usd_per_mtok": 0.05, "output_usd_per_mtok": 0.4}],
    )
    dialect: DialectName | None = Field(
        default=None, description="How the endpoint is spoken to; null: by its address.", examples=["vllm"]
    )
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = Field(
        default=None, description="How long a reasoning model thinks; null: as its vendor has it.", examples=["low"]
    )
    thought_tokens: int | None = Field(
        default=None,
        ge=0,
        le=65_536,
        description="Tokens left for thoughts in an answer; null: by the effort, 4096 if the model is known to think.",
        examples=[2048],
    )


class DraftCache(Part):
    """The store of candidates that were not selected."""

    enabled: bool = Field(
        default=True,
        description="Whether rejects are kept as drafts for later compiles, and earlier ones offered to the teacher.",
        examples=[True],
    )
    verify: Literal["auto", "judge", "logprobs", "engine", "off"] = Field(
        default="auto",
        description="How drafts are verified: the best of log-probs and judge that pays (auto), or one way; off keeps "
        "them and offers none.",
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
    judge: DraftJudge | None = Field(
        default=None,
        description="A cheaper model that judges drafts; null: the teacher does.",
        examples=[{"model": "gpt-5-nano"}],
    )
    audit_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the slices whose accepted drafts are asked about again, to measure how many are bad.",
        examples=[0.1],
    )
