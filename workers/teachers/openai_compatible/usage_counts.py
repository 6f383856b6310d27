"""The counts of a usage, under the names that vendors give them. What they say is hostile input: a count here may be
anything, and `answers.read_usage` judges it.

OpenAI counts what was read from its cache within the input, and thoughts within the output. Anthropic's own counts
(`cache_read_input_tokens`, `cache_creation_input_tokens`) stand beside the input
(https://docs.claude.com/en/docs/build-with-claude/prompt-caching), Gemini's and xAI's thoughts beside the output: the
total alone says so. Cached input is `prompt_cache_hit_tokens` at DeepSeek. From memory: `cached_tokens` at the top of
the usage (Moonshot, Together) and `num_cached_tokens` (servers over vLLM).
"""

from dataclasses import dataclass
from typing import Any, TypeGuard

_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
_READS = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens")
_WRITES = ("cache_creation_tokens", "cache_write_tokens", "cache_creation_input_tokens")
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")  # Anthropic's names


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounts:
    """The counts as reported; `cached` and `written` are parts of the input. `beside` are thoughts that are not within
    the reported output."""

    tokens_in: object
    tokens_out: object
    cached: object
    written: object
    thoughts: object
    beside: int


def read_counts(usage: dict[str, Any]) -> UsageCounts:
    """The counts of a usage, its input with what was read from a cache or written to one.

    >>> counts = read_counts({"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 900})
    >>> counts.tokens_in, counts.tokens_out, counts.cached
    (1000, 10, 900)
    """
    tokens_in, tokens_out = _first(usage, _INPUT), _first(usage, _OUTPUT)
    cached = _either(_first(usage, ("cached_tokens", "cache_read_tokens"), _INPUT_DETAILS), _first(usage, _READS))
    written = _either(_first(usage, _WRITES, _INPUT_DETAILS), _first(usage, _WRITES[-1:]))
    thoughts = _first(usage, ("reasoning_tokens",), _OUTPUT_DETAILS)
    total = usage.get("total_tokens")
    if is_count(tokens_in) and is_count(total) and tokens_out is None:  # Gemini leaves out an output of nothing
        tokens_out = max(0, total - tokens_in)
    beyond = _minus(total, tokens_in, tokens_out)
    beside_in = _cache_beside(usage, tokens_in, beyond, thoughts)
    if beside_in and is_count(tokens_in):
        tokens_in += beside_in
    beside = max(0, (beyond or 0) - beside_in)
    return UsageCounts(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cached=cached,
        written=written,
        thoughts=beside if thoughts is None and beside else thoughts,
        beside=beside,
    )


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _first(usage: dict[str, Any], names: tuple[str, ...], groups: tuple[str, ...] = ()) -> object:
    """The first count above 0 under one of the names, in one of the groups where there are any: a gateway may write 0
    under one name and the count under the other. Without one the first that is there at all."""
    places = [usage.get(group) for group in groups] if groups else [usage]
    values = [place.get(name) for place in places if isinstance(place, dict) for name in names]
    shown = [value for value in values if value is not None]
    return next((value for value in shown if is_count(value) and value), shown[0] if shown else None)


def _either(within: object, beside: object) -> object:
    return beside if within in (None, 0) and beside is not None else within


def _minus(total: object, tokens_in: object, tokens_out: object) -> int | None:
    """The tokens that a total holds beyond input and output; None where one of them is no count."""
    if not (is_count(total) and is_count(tokens_in) and is_count(tokens_out)):
        return None
    return max(0, total - tokens_in - tokens_out)


def _cache_beside(usage: dict[str, Any], tokens_in: object, beyond: int | None, thoughts: object) -> int:
    """Input read from a cache or written to one that is not within the reported input.

    It is where the total holds as much beyond input and output, but for thoughts that are reported by themselves; and
    without a total where Anthropic's names stand beside its own `input_tokens`, or say more than the input is. A total
    that holds nothing beyond, and OpenAI's details, say that the input has it.
    """
    reads, writes = (value if is_count(value) else 0 for value in (_first(usage, _READS), _first(usage, _WRITES[-1:])))
    if not is_count(tokens_in) or not reads + writes:
        return 0
    if beyond:
        of_thoughts = thoughts if is_count(thoughts) else 0
        is_beside = beyond - reads - writes in (0, of_thoughts) and beyond != of_thoughts
        return reads + writes if is_beside else 0
    if beyond == 0:
        return 0
    anthropic = sum(value for name in _BESIDE if is_count(value := usage.get(name)))
    is_own = usage.get("prompt_tokens") is None and not isinstance(usage.get("input_tokens_details"), dict)
    return anthropic if is_own or anthropic > tokens_in else 0
