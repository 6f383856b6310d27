"""Chats that a student on an encoder answers: a label, or the json or text of a span student. It writes no tokens.

The last user message is the input; what stands before it is not read. Parameters that steer how tokens are drawn change
nothing, because nothing is drawn; those that ask for what is not there are refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_runners.artifacts.encoder_student import EncoderModel, StudentAnswer
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.models.protocol import Counts, Delta, FinishReason, TokenLogprob
from gpu_runners.serving.openai.answer_forms import AnswerForm, asked_form, unfit_answer
from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.bodies.chats import ChatCall

MAX_CHARS = 100_000  # of an input
_LEAST = 1e-9  # of a probability: JSON has no minus infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentInput:
    """A chat as a student reads it: the input, the form of its answer, how many messages are not read, and how many
    labels are told beside the one that is chosen (None: no log-probs)."""

    text: str
    form: AnswerForm
    n_unread: int
    top_logprobs: int | None

    def about(self, answer: StudentAnswer) -> dict[str, Any]:
        """The members of `kolm`."""
        return {**answer.kolm, **({"unread_messages": self.n_unread} if self.n_unread else {})}


def student_input(call: ChatCall, model: EncoderModel) -> StudentInput:
    """The input of a chat. Raises BadRequest for a chat that this student cannot answer."""
    _check_sampling(call, model)
    form = _form(call, model)
    contents = [message["content"] for message in call.messages if message["role"] == "user"]
    if not contents:
        raise BadRequest("There is no user message; its content is the input.", param="messages", code="invalid_value")
    text = str(contents[-1])
    if len(text) > MAX_CHARS:
        message = f"An input has at most {MAX_CHARS:,} characters here; send it in parts."
        raise BadRequest(message, param="messages", code="context_length_exceeded")
    return StudentInput(text=text, form=form, n_unread=len(call.messages) - 1, top_logprobs=call.sampling.top_logprobs)


def student_delta(answer: StudentAnswer, asked: StudentInput) -> Delta:
    """The whole answer at once."""
    logprobs = () if asked.top_logprobs is None else (_label_logprob(answer, asked.top_logprobs),)
    return Delta(
        text=answer.text,
        logprobs=logprobs,
        finish_reason=FinishReason.STOP,
        counts=Counts(prompt_tokens=answer.n_read),
    )


def no_completions() -> BadRequest:
    return BadRequest(
        "This model is a student on an encoder, which continues no text; use /v1/chat/completions.", code="unsupported"
    )


def own_answer(model: EncoderModel) -> Mapping[str, Any]:
    """The form of a student's own answers, as prompt.json has a causal model's."""
    if isinstance(model, LabelModel):
        return {"type": "label", "labels": model.labels}
    return model.answer_form()


def _label_logprob(answer: StudentAnswer, n_top: int) -> TokenLogprob:
    """The label as the one token of its answer, by its calibrated probability."""
    ranked = [(label, math.log(max(_LEAST, probability))) for label, probability in answer.ranking]
    return TokenLogprob(token=ranked[0][0], logprob=ranked[0][1], top=tuple(ranked[:n_top]))


def _check_sampling(call: ChatCall, model: EncoderModel) -> None:
    sampling = call.sampling
    has_odds = isinstance(model, LabelModel)
    asked = {
        "tools": (
            bool(call.tools) and not call.forced,
            'it does not choose between text and tools; have it called with tool_choice "required" or with the name of '
            "a function, or leave them out",
        ),
        "n": (sampling.n > 1, "it has one answer to an input; leave `n` out"),
        "logprobs": (
            sampling.top_logprobs is not None and not has_odds,
            "it writes no tokens; the confidence of each field is in `kolm`",
        ),
        "stop": (bool(sampling.stop), "its answer is not cut; leave `stop` out"),
        "frequency_penalty": (bool(sampling.frequency_penalty), "it writes no tokens to discourage"),
        "presence_penalty": (bool(sampling.presence_penalty), "it writes no tokens to discourage"),
    }
    for name, (is_asked, why) in asked.items():
        if is_asked:
            message = f"`{name}` does nothing for this model, a student on an encoder: {why}."
            raise BadRequest(message, param=name, code="unsupported_parameter")


def _form(call: ChatCall, model: EncoderModel) -> AnswerForm:
    if isinstance(model, LabelModel) and call.sampling.format == "json_object":
        raise BadRequest(
            "This model answers with one of its labels, not with any JSON; leave response_format out, or ask for a "
            "json_schema with one field.",
            param="response_format",
            code="unsupported_parameter",
        )
    own = own_answer(model)
    form = asked_form(call, own)
    if form.schema is not None:
        raise unfit_answer(call, own)
    return form
