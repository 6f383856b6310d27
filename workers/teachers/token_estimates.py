"""Estimates of the tokens of a text, where no tokenizer says so."""

import math

from backend.domain.dialects.tools import likely_tool_tokens
from workers.teachers.protocol import CompletionRequest

BYTES_PER_TOKEN = 4  # the estimate for teachers that report no usage


def estimate_tokens(text: str) -> int:
    """The tokens of a text, a token every four bytes."""
    return max(1, math.ceil(len(text.encode("utf-8")) / BYTES_PER_TOKEN)) if text else 0


def likely_input_tokens(request: CompletionRequest) -> int:
    """The tokens of a request's prompt, of its tool and of the answer that it begins."""
    tool = likely_tool_tokens(request.answer_schema) if request.as_tool else 0
    return sum(estimate_tokens(m.content) for m in request.messages) + tool + estimate_tokens(request.prefix)
