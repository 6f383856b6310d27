"""Chats that the artifact's rules may answer: those that ask what the rules were induced for, and nothing else."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from gpu_runners.artifacts.rules_first import RuleAnswer
from gpu_runners.models.protocol import Delta, FinishReason
from gpu_runners.serving.openai.answer_forms import AnswerForm
from gpu_runners.serving.openai.bodies.chats import ChatCall, Sampling
from gpu_runners.serving.openai.responder import Served


def rule_answer(call: ChatCall, served: Served, form: AnswerForm) -> RuleAnswer | None:
    """Answer one user message under the artifact's own system message, answered greedily in the artifact's own form;
    None for every other chat, and where no rule is sure."""
    if call.tools and not (call.forced and form.is_own):
        return None
    text = _input(call.messages, str(served.prompt.get("system", "")))
    if served.rules is None or text is None or not _is_greedy(call.sampling, served.prompt, form):
        return None
    answer = served.rules.answer(text)
    if answer is None or not _fits(answer.text, call.sampling.max_tokens, served.prompt):
        return None
    return answer


async def rule_deltas(answer: RuleAnswer, served: Served, *, n: int) -> AsyncGenerator[tuple[int, Delta], None]:
    """`n` choices of the one answer, without tokens: no model read or wrote any."""
    for index in range(n):
        served.note_rule(answer)
        yield index, Delta(text=answer.text, finish_reason=FinishReason.STOP)


def _input(messages: Sequence[Mapping[str, Any]], system: str) -> str | None:
    roles = [message["role"] for message in messages]
    if roles == ["system", "user"] and messages[0].get("content") == system:
        messages = messages[1:]
    elif roles != ["user"]:
        return None
    content = messages[0].get("content")
    return content if isinstance(content, str) else None


def _is_greedy(sampling: Sampling, prompt: Mapping[str, Any], form: AnswerForm) -> bool:
    """Log-probs, penalties and stop texts are questions about the model's own words."""
    is_json = prompt.get("answer", {}).get("type") == "json"
    in_own_form = form.is_own or (sampling.format == "json_object" and is_json)
    wants_words = sampling.top_logprobs is not None or sampling.stop
    is_pushed = sampling.frequency_penalty or sampling.presence_penalty
    return in_own_form and not sampling.temperature and not wants_words and not is_pushed


def _fits(text: str, max_tokens: int | None, prompt: Mapping[str, Any]) -> bool:
    """Say whether the answer and its end surely have no more tokens than were asked for: a token has at least a
    byte."""
    return max_tokens is None or max_tokens >= prompt.get("max_new_tokens", 0) or len(text.encode()) < max_tokens
