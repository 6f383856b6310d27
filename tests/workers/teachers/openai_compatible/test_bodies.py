"""What is sent, field by field: nothing that a server might not know, unless it said that it does."""

import json

from workers.teachers.openai_compatible.bodies import chat_body, echo_body
from workers.teachers.protocol import CompletionRequest, Message, ScoreRequest, TeacherCaps

MESSAGES = (Message(role="system", content="s"), Message(role="user", content="u"))
FULL = CompletionRequest(
    messages=MESSAGES, logprobs=True, top_logprobs=30, top_k=5, prefix="be", drafts=("a", "ü"), cache_salt="t", seed=1
)
ALL = TeacherCaps(logprobs=True, prompt_logprobs=True, prefix=True, engine_drafts=True, max_top_logprobs=20)


def test_a_plain_request_has_openais_fields_alone() -> None:
    body = chat_body(CompletionRequest(messages=MESSAGES), "m", ALL)
    assert set(body) == {"model", "messages", "n", "temperature", "top_p", "max_tokens"}


def test_an_engine_gets_the_begun_answer_the_drafts_and_the_salt() -> None:
    body = chat_body(FULL, "m", ALL)
    assert body["messages"][-1] == {"role": "assistant", "content": "be"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body["logprobs"], body["top_logprobs"], body["top_k"]) == (True, 20, 5)
    assert body["cache_salt"] == "t"
    assert json.loads(body["vllm_xargs"]["kolm_drafts"]) == ["a", "ü"]


def test_a_vendor_gets_neither_drafts_nor_the_salt() -> None:
    body = chat_body(FULL, "m", TeacherCaps(logprobs=True))
    assert not {"cache_salt", "vllm_xargs", "top_logprobs"} & set(body)
    assert body["logprobs"] is True


def test_a_score_asks_for_no_token_and_as_many_alternatives_as_there_are() -> None:
    body = echo_body(ScoreRequest(messages=MESSAGES, text="x", top_logprobs=30, top_k=5), "m", ALL)
    assert body["prompt"] == "s\n\nu\n\nx"
    assert (body["max_tokens"], body["echo"], body["logprobs"], body["top_k"]) == (0, True, 20, 5)
