"""The vendors' words for why a choice ended, read as one of five: stop, length, content_filter, tool_calls and error.

The map is closed. A word that is not in it is an error: an answer that nobody vouches for as whole is none.

Sources: https://platform.openai.com/docs/api-reference/chat/object, https://docs.mistral.ai/api (`model_length`,
`error`), https://ai.google.dev/api/generate-content#FinishReason (`MAX_TOKENS`, `SAFETY`, ...),
https://platform.claude.com/docs/build-with-claude/handling-stop-reasons (`end_turn`, `max_tokens`, `refusal`, ...),
https://openrouter.ai/docs/api-reference/errors (a choice with an `error`). Gemini's OpenAI-compatible endpoint answers
`content_filter: PROHIBITED_CONTENT`, as clients report. From memory: `eos_token` (text-generation-inference), `eos`
(Together), `sensitive` (Z.ai), `COMPLETE` and `ERROR_TOXIC` (Cohere), `guardrail_intervened` (Bedrock).
"""

import re
from typing import Any

_STOP = re.compile(
    r"stop(?:ped|_sequence|_token|_word)?|eos(?:_token)?|end(?:_turn|_of_turn|_of_text)?|completed?|finished|done"
)
_LENGTH = re.compile(
    r"(?:model_|max_)?length|max_(?:new_|output_|completion_)?tokens?(?:_reached)?|token_limit"
    r"|(?:model_context_window|context_length)_exceeded"
)
_TOOLS = re.compile(r"tool_calls?|tool_use|function_call")
# by their beginning: what follows says which filter it was
_FILTERS = re.compile(
    r"content_?filter|content_policy|(?:image_)?(?:safety|recitation|prohibited_content)|blocklist|spii|refusal|sensitive"
    r"|moderat|guardrail|model_armor|error_toxic|flagged"
)


def finish_reason_of(row: dict[str, Any]) -> str:
    """The reason of one choice.

    >>> [finish_reason_of({"finish_reason": word}) for word in ("MAX_TOKENS", "content_filter: SPII", "abort", None)]
    ['length', 'content_filter', 'error', 'stop']
    """
    if row.get("error"):
        return "error"
    word = row.get("finish_reason")
    if word is None:
        return "stop"
    if not isinstance(word, str):
        return "error"
    word = re.sub(r"[\s-]+", "_", word.strip().lower()).removeprefix("finish_reason_")
    if _STOP.fullmatch(word):
        return "stop"
    if _LENGTH.fullmatch(word):
        return "length"
    if _TOOLS.fullmatch(word):
        return "tool_calls"
    return "content_filter" if _FILTERS.match(word) else "error"
