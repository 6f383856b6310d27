"""The batch endpoints that kolm sends to, and why it sends none elsewhere: data, with sources and days.

A batch endpoint takes a file of requests and answers it within a window, for less than the same requests cost one by
one. What is here speaks OpenAI's protocol: a JSONL file uploaded to /files for the purpose "batch", a job made of it at
/batches, the answers in an output file and an error file. No endpoint was asked; rows are as documentation has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

OUR_MOST_REQUESTS = 10_000  # fewer than vendors take: a batch that fails or expires is less to do again
OUR_MOST_BYTES = 64 * 2**20  # of the input file, and four times that of what it may be answered with


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """The terms of a vendor's batches: the share that it takes off, the window within which it answers, how much one
    file may hold, and where a line's request goes. `with_cache`: cached input, too, costs less by that share."""

    source: str
    written_on: str  # year-month-day
    discount: Decimal
    with_cache: bool
    window: str = "24h"
    window_h: int = 24
    max_requests: int = 50_000
    max_bytes: int = 200 * 10**6
    url: str = "/v1/chat/completions"

    @property
    def most_requests(self) -> int:
        """The most requests that one of our batches holds here."""
        return min(self.max_requests, OUR_MOST_REQUESTS)

    @property
    def most_bytes(self) -> int:
        return min(self.max_bytes, OUR_MOST_BYTES)


OPENAI_BATCHES = BatchTerms(
    source="https://platform.openai.com/docs/guides/batch",
    written_on="2026-11-26",
    discount=Decimal("0.5"),
    with_cache=True,
)
# The page's stored copy of 2025 says 25 %; two records of 2026 say 50 %. Nothing says that cached input is discounted
# twice: it is taken for input.
GROQ_BATCHES = BatchTerms(
    source="https://console.groq.com/docs/batch",
    written_on="2026-11-26",
    discount=Decimal("0.5"),
    with_cache=False,
)

# Endpoints of other protocols, by the dialect that their address has.
OTHER_PROTOCOLS: Mapping[str, str] = {
    "azure-openai": "a batch deployment of its own answers no live call (https://learn.microsoft.com/azure/ai-foundry/openai/how-to/batch)",
    "anthropic": "Message Batches is an API of its own (https://docs.claude.com/en/docs/build-with-claude/batch-processing)",
    "gemini": "batches are Gemini's own requests, in no file of chat completions (https://ai.google.dev/gemini-api/docs/batch-api)",
    "vertex": "batches are jobs over a bucket or a table of Google Cloud",
    "mistral": "/v1/batch/jobs is a protocol of its own (https://docs.mistral.ai/capabilities/batch)",
    "mistral-reasoning": "/v1/batch/jobs is a protocol of its own (https://docs.mistral.ai/capabilities/batch)",
    "together": "files are uploaded another way, and only some models cost less (https://docs.together.ai/docs/inference/batch/overview)",
    "fireworks": "batches are jobs over a data set (https://docs.fireworks.ai/guides/batch-inference)",
    "openrouter": "/batches takes its requests without a file (https://openrouter.ai/blog/announcements/batch-api)",
    "openrouter-breakpoints": "/batches takes its requests without a file (https://openrouter.ai/blog/announcements/batch-api)",
    "bedrock": "batches are jobs over a bucket of AWS",
    "xai": "its batches are an API of their own",
}


def no_batches(name: str) -> str:
    """Say why a dialect of this name gets no batches.

    >>> no_batches("vllm")
    'kolm knows no batch endpoint of the dialect "vllm"'
    """
    reason = OTHER_PROTOCOLS.get(name)
    if reason is None:
        return f'kolm knows no batch endpoint of the dialect "{name}"'
    return f'kolm does not speak the batch endpoint of "{name}" yet: {reason}'
