"""Reads what a vLLM counts of itself at `/metrics`, as hostile input."""

import math
import re

from backend.domain.drafts.vocabulary import EngineTokens

MAX_COUNT = 2**53  # of a float that is still a whole number
_NAMES = {
    "written": "vllm:generation_tokens_total",
    "proposed": "vllm:spec_decode_num_draft_tokens_total",
    "kept": "vllm:spec_decode_num_accepted_tokens_total",
}


def read_counters(body: bytes) -> EngineTokens | None:
    """Return the tokens since the engine began, those of all its parts together; None where it does not count them all:
    an engine without a proposer has no drafts to count.

    >>> read_counters(b'vllm:generation_tokens_total{engine="0"} 7.0') is None
    True
    """
    text = body.decode("utf-8", errors="replace")
    counts = {name: _sum(text, metric) for name, metric in _NAMES.items()}
    known = {name: count for name, count in counts.items() if count is not None}
    return EngineTokens(**known) if len(known) == len(_NAMES) else None


def _sum(text: str, metric: str) -> int | None:
    rows = re.findall(rf"^{re.escape(metric)}(?:\{{[^}}\n]*\}})? (\S{{1,40}})$", text, re.MULTILINE)
    values = [_number(row) for row in rows]
    known = [value for value in values if value is not None]
    return sum(known) if rows and len(known) == len(rows) else None


def _number(written: str) -> int | None:
    try:
        value = float(written)
    except ValueError:
        return None
    return round(value) if math.isfinite(value) and 0 <= value < MAX_COUNT else None
