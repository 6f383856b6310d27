"""The reward of a spec: a model that gives every candidate a number, before the other verifiers are asked for one."""

from typing import Literal

from pydantic import Field

from backend.domain.spec.fields import Part, TeacherKeyId
from backend.domain.spec.teacher import DeclaredPrice, DialectName

RewardApiName = Literal["chat", "vllm-classify", "vllm-pooling", "vllm-score", "rerank", "sglang-rerank", "tei-rerank"]
CHAT = "chat"


class RewardVerifier(Part):
    """A model that scores each candidate: the teacher or another chat model by a rubric, or a reward model."""

    kind: Literal["reward"] = Field(description="The kind of check.", examples=["reward"])
    rubric: str | None = Field(
        default=None,
        min_length=1,
        max_length=4000,
        pattern=r"\S",
        description="What a good candidate is, in your words; null: that it fits its slice and could be real.",
        examples=["A customer's own words, with the detail that an agent would need."],
    )
    api: RewardApiName = Field(
        default="chat",
        description="chat: a chat model is asked by the rubric; else the endpoint of a reward model or reranker.",
        examples=["vllm-classify"],
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^\S+$",
        description="The model's name; null: the teacher's model.",
        examples=["Skywork/Skywork-Reward-V2-Qwen3-0.6B"],
    )
    base_url: str | None = Field(
        default=None,
        max_length=2000,
        description="The endpoint's address up to /v1; null: the teacher's endpoint, with its key.",
        examples=["https://rewards.example.com/v1"],
    )
    api_key: TeacherKeyId | None = Field(
        default=None,
        description="Id of a stored teacher key for base_url, never the key itself.",
        examples=["tk_01ktfz2x8e4s1c9w0m5q7r3vbd"],
    )
    price: DeclaredPrice | None = Field(
        default=None,
        description="Your price for this model; goes before every price table.",
        examples=[{"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.4}],
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
        description="Tokens left for thoughts in an answer; null: as for the teacher.",
        examples=[2048],
    )
    concurrency: int | None = Field(
        default=None, ge=1, le=32, description="Most calls at the same time; null: the teacher's.", examples=[4]
    )
    per_call: int = Field(
        default=8, ge=1, le=24, description="Candidates that a chat model rates in one call.", examples=[8]
    )

    @property
    def is_chat(self) -> bool:
        return self.api == CHAT
