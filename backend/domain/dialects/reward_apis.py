"""The endpoints of reward models and rerankers: where each is asked, what is sent and where its number stands in the
answer, as stored copies of the servers' source and documentation tell. No endpoint was asked.

A reward model reads a conversation: the question that a candidate answers, and the candidate. A reranker (a cross
encoder) reads a pair of texts. Numbers are taken raw where the server can be asked for that (`use_activation`), because
a sigmoid in float16 is 1.0 for everything that is good; a server that does not know the option ignores it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

_NUMBER = re.compile(r"[+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][+-]?\d{1,3})?", re.ASCII)
WRITTEN = "2026-11-26"
RAW: Mapping[str, Any] = MappingProxyType({"use_activation": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardApi:
    """One row. `path` is after the server's root, or after the spec's `base_url` where `is_under_base`. The number
    stands at `answer` in the response: names of objects, places in lists (-1 is the last)."""

    name: str
    path: str
    source: str
    written_on: str
    reads: Literal["messages", "pair"]
    answer: tuple[str | int, ...]
    is_under_base: bool = False
    question: str = ""
    candidate: str = ""
    fixed: Mapping[str, Any] = field(default_factory=lambda: RAW)

    def url(self, base_url: str) -> str:
        """The address to post to."""
        base = base_url.rstrip("/")
        return (base if self.is_under_base else base.removesuffix("/v1")) + self.path

    def body(self, model: str, question: str, candidate: str) -> dict[str, Any]:
        """The JSON that asks about one candidate.

        >>> VLLM_SCORE.body("m", "q", "c")
        {'model': 'm', 'text_1': 'q', 'text_2': ['c'], 'use_activation': False}
        """
        if self.reads == "messages":
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": candidate}]
            return {"model": model, "messages": messages, **self.fixed}
        return {"model": model, self.question: question, self.candidate: [candidate], **self.fixed}

    def number(self, answer: object) -> object:
        """Find what stands where the number should. Raises LookupError or TypeError where nothing does. A list of one
        number is that number; of the numbers of several tokens the last is the whole text's. A number that is written
        as text is that number too."""
        value: Any = answer
        for step in self.answer:
            value = value[step]
        while isinstance(value, list):
            value = value[-1]
        is_number = isinstance(value, str) and _NUMBER.fullmatch(value.strip())
        return float(value) if is_number else value


VLLM_CLASSIFY = RewardApi(
    name="vllm-classify",
    path="/classify",
    source="https://docs.vllm.ai/en/stable/models/pooling_models/classify/",
    written_on=WRITTEN,
    reads="messages",
    answer=("data", 0, "probs"),
)
VLLM_POOLING = RewardApi(
    name="vllm-pooling",
    path="/pooling",
    source="https://docs.vllm.ai/en/v0.18.1/examples/pooling/pooling/",
    written_on=WRITTEN,
    reads="messages",
    answer=("data", 0, "data"),
)
VLLM_SCORE = RewardApi(
    name="vllm-score",
    path="/score",
    source="https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/pooling/scoring/protocol.py",
    written_on=WRITTEN,
    reads="pair",
    question="text_1",
    candidate="text_2",
    answer=("data", 0, "score"),
)
RERANK = RewardApi(
    name="rerank",
    path="/rerank",
    source="https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/pooling/scoring/protocol.py",
    written_on=WRITTEN,
    reads="pair",
    is_under_base=True,
    question="query",
    candidate="documents",
    answer=("results", 0, "relevance_score"),
    fixed=MappingProxyType({}),  # Jina's and Cohere's protocol, which has no such option
)
# A list of objects and no usage; `score` is a number, and was a list of one in releases of before it was coerced.
SGLANG_RERANK = RewardApi(
    name="sglang-rerank",
    path="/rerank",
    source="https://github.com/sgl-project/sglang/blob/main/docs/supported_models/retrieval_ranking/rerank_models.md",
    written_on=WRITTEN,
    reads="pair",
    is_under_base=True,
    question="query",
    candidate="documents",
    answer=(0, "score"),
    fixed=MappingProxyType({"return_documents": False}),  # older ones do not know it and return the text
)
# The model is the server's one and its name is not read. A model of more than one class is refused (424).
TEI_RERANK = RewardApi(
    name="tei-rerank",
    path="/rerank",
    source="https://github.com/huggingface/text-embeddings-inference/blob/main/router/src/http/types.rs",
    written_on=WRITTEN,
    reads="pair",
    question="query",
    candidate="texts",
    answer=(0, "score"),
    fixed=MappingProxyType({"raw_scores": True}),
)
APIS: Sequence[RewardApi] = (VLLM_CLASSIFY, VLLM_POOLING, VLLM_SCORE, RERANK, SGLANG_RERANK, TEI_RERANK)


def reward_api(name: str) -> RewardApi:
    """The row of a spec's `api`."""
    return next(api for api in APIS if api.name == name)
