"""Chats that a student on an encoder answers: a label, or the json of a span student. It writes no tokens.

The last user message is the input; what stands before it is not read. Parameters that steer how tokens are drawn change
nothing, because nothing is drawn; those that ask for what is not there are refused.
"""

from collections.abc import AsyncGenerator

from backend.domain.answers.same_form import is_same_schema
from gpu_runners.artifacts.encoder_student import EncoderModel, StudentAnswer
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.models.protocol import Delta
from gpu_runners.serving.openai.bodies import ChatCall
from gpu_runners.serving.openai.faults import BadRequest
from gpu_runners.serving.openai.shapes import Answer

MAX_CHARS = 100_000  # of an input


def student_input(call: ChatCall, model: EncoderModel) -> str:
    """The input of a chat. Raises BadRequest for a chat that this student cannot answer."""
    _check_sampling(call)
    _check_format(call, model)
    contents = [message["content"] for message in call.messages if message["role"] == "user"]
    if not contents:
        raise BadRequest("There is no user message; its content is the input.", param="messages", code="invalid_value")
    text = str(contents[-1])
    if len(text) > MAX_CHARS:
        message = f"An input has at most {MAX_CHARS:,} characters here; send it in parts."
        raise BadRequest(message, param="messages", code="context_length_exceeded")
    return text


def no_completions() -> BadRequest:
    return BadRequest(
        "This model is a student on an encoder, which continues no text; use /v1/chat/completions.", code="unsupported"
    )


def openai_answer(answer: StudentAnswer, *, model: str) -> Answer:
    """OpenAI's object of an answer, still without its text."""
    return Answer(model=model, is_chat=True, n_choices=1, has_logprobs=False, reads_tools=False, kolm=answer.kolm)


async def one_delta(answer: StudentAnswer) -> AsyncGenerator[tuple[int, Delta], None]:
    yield 0, answer.delta


def _check_sampling(call: ChatCall) -> None:
    sampling = call.sampling
    asked = {
        "tools": (bool(call.tools), "it calls no tools; leave them out"),
        "n": (sampling.n > 1, "it has one answer to an input; leave `n` out"),
        "logprobs": (sampling.top_logprobs is not None, "it writes no tokens; its confidence is in `kolm`"),
        "stop": (bool(sampling.stop), "its answer is not cut; leave `stop` out"),
        "frequency_penalty": (bool(sampling.frequency_penalty), "it writes no tokens to discourage"),
        "presence_penalty": (bool(sampling.presence_penalty), "it writes no tokens to discourage"),
    }
    for name, (is_asked, why) in asked.items():
        if is_asked:
            message = f"`{name}` does nothing for this model, a student on an encoder: {why}."
            raise BadRequest(message, param=name, code="unsupported_parameter")


def _check_format(call: ChatCall, model: EncoderModel) -> None:
    form, schema = call.sampling.format, call.sampling.schema
    if form in (None, "text"):
        return
    if isinstance(model, LabelModel):
        raise BadRequest(
            "This model answers with one of its labels, not with JSON; leave response_format out.",
            param="response_format",
            code="unsupported_parameter",
        )
    if schema is not None and not is_same_schema(schema, model.schema):
        raise BadRequest(
            "This model answers by the schema that it was trained for and by no other; leave response_format out, or "
            "compile the task with your schema.",
            param="response_format",
            code="unsupported_parameter",
        )
