"""Answers that are the arguments of a tool's call: what is read of them, what is refused, and what is asked then."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.dialects.dialect import Lesson, Option, schema_digest
from backend.domain.dialects.table import BY_NAME as DIALECTS
from backend.domain.dialects.tools import most_tool_tokens
from tests.workers.answer_helpers import SCHEMA
from tests.workers.calls import price
from tests.workers.teachers.strict_vendors import BY_NAME, Endpoint, Vendor, refuse_forced_tools, serving
from workers.step.teacher_calls import worst_cost
from workers.teachers.openai_compatible.answers import Answer, most_input_tokens, read_chat
from workers.teachers.openai_compatible.batch_lines import BatchRequest, answer_of, lesson_of, read_lines
from workers.teachers.openai_compatible.bodies import chat_body
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.refusals import lesson_of as lesson_of_refusal
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.prompts.reward import read_ratings
from workers.teachers.protocol import Choice, Completion, CompletionRequest, Message, TeacherCaps, TeacherIdentity
from workers.teachers.token_estimates import likely_input_tokens

ANTHROPIC = DIALECTS["anthropic"]
REQUEST = CompletionRequest(
    messages=(Message(role="user", content="What is complained about?"),),
    temperature=0.0,
    answer_schema=json.dumps(SCHEMA),
    as_tool=True,
)
ANSWER = '{"subject": "The parcel", "urgent": true}'
TO_FREE = Lesson(option=Option.RESPONSE_FORMAT, value="text")


def call_of(arguments: Any, *, name: Any = "answer") -> dict[str, Any]:
    return {"id": "toolu_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(*calls: Any, content: Any = None, finish: Any = "tool_calls", **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    return {"choices": [{"message": message, "finish_reason": finish, **choice}]}


def read(body: Mapping[str, Any], request: CompletionRequest = REQUEST) -> Choice:
    (choice,) = read_chat(json.dumps(body).encode(), request).choices
    return choice


@pytest.mark.parametrize("finish", ["tool_calls", "stop", None, "tool_use", "function_call"])
def test_the_arguments_of_the_call_are_the_answer_and_it_has_ended(finish: Any) -> None:
    choice = read(completion(call_of(ANSWER), finish=finish))
    assert (choice.text, choice.finish_reason) == (ANSWER, "stop")
    assert choice.n_tokens == len(ANSWER) // 4 + 1


def test_arguments_that_are_an_object_become_text() -> None:
    assert json.loads(read(completion(call_of({"subject": "Größe", "urgent": False}))).text) == {
        "subject": "Größe",
        "urgent": False,
    }


def test_what_is_said_beside_a_call_is_no_answer() -> None:
    body = completion(call_of(ANSWER), content="<think>which?</think> I call the tool.", reasoning_content="hm")
    assert read(body).text == ANSWER


@pytest.mark.parametrize(
    "calls",
    [None, [], {}, "x", 7, [None], [7], [{}], [{"function": None}], [{"function": "answer"}]],
    ids=json.dumps,
)
@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
def test_without_a_call_the_content_is_the_answer(calls: Any, finish: str) -> None:
    message = {"role": "assistant", "content": ANSWER, "tool_calls": calls}
    assert read({"choices": [{"message": message, "finish_reason": finish}]}).text == ANSWER


@pytest.mark.parametrize("arguments", ["", "  \n"])
def test_a_call_without_arguments_is_none(arguments: str) -> None:
    assert read(completion(call_of(arguments), content=ANSWER)).text == ANSWER
    assert read(completion(call_of(arguments))).text == ""


@pytest.mark.parametrize("name", ["Answer", "answer2", "", None, 7, ["answer"], {"answer": 1}])
def test_a_call_of_another_tool_is_no_answer(name: Any) -> None:
    assert read(completion(call_of(ANSWER, name=name))).text == ""
    assert read(completion(call_of(ANSWER, name=name), content="{}")).text == "{}"


def test_of_two_calls_the_first_counts() -> None:
    assert read(completion(call_of(ANSWER), call_of("{}"))).text == ANSWER
    assert read(completion(call_of("{}", name="other"), call_of(ANSWER))).text == ""


def test_a_request_without_a_schema_has_no_call_for_an_answer() -> None:
    assert read(completion(call_of(ANSWER)), replace(REQUEST, answer_schema="")).text == ""


@pytest.mark.parametrize("arguments", ["no JSON", '{"subject": ', "[1]", "null", "```json\n{}\n```"])
def test_arguments_that_are_no_answer_come_as_they_are(arguments: str) -> None:
    assert read(completion(call_of(arguments))).text == arguments


@pytest.mark.parametrize("arguments", [None, 7, True, ["a"], 1.5], ids=json.dumps)
def test_arguments_that_are_neither_text_nor_an_object_are_a_bad_answer(arguments: Any) -> None:
    with pytest.raises(BadAnswer, match="neither text nor an object"):
        read(completion(call_of(arguments)))


@pytest.mark.parametrize(
    "arguments",
    ['{"a": "\x00"}', '{"a": "\ud800"}', {"a": "\ud800"}, "x" * 20_000, {"a": "x" * 20_000}],
    ids=["nul", "surrogate", "surrogate in an object", "long", "long object"],
)
def test_arguments_are_as_clean_and_as_short_as_content(arguments: Any) -> None:
    with pytest.raises(BadAnswer):
        read(completion(call_of(arguments)))


@pytest.mark.parametrize("depth", [200, 400, 600, 900, 100_000])
def test_arguments_of_any_depth_are_read_or_refused(depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    body = json.dumps(completion(call_of("DEEP"))).replace('"DEEP"', deep).encode()
    try:
        (choice,) = read_chat(body, replace(REQUEST, max_tokens=100_000)).choices
    except BadAnswer:
        return
    assert choice.text.count("{") == depth


@pytest.mark.parametrize("arguments", [ANSWER, ANSWER + "\n", {"subject": "The parcel"}, "{}"])
def test_a_call_that_was_cut_is_no_whole_answer_though_the_vendor_closed_it(arguments: Any) -> None:
    choice = read(completion(call_of(arguments), finish="length"))
    assert choice.finish_reason == "length"
    assert choice.text
    with pytest.raises(ValueError, match=r"\w"):
        json.loads(choice.text)


def test_a_call_that_was_cut_in_the_middle_comes_as_it_is() -> None:
    assert read(completion(call_of('{"subject": "The'), finish="length")).text == '{"subject": "The'


def test_no_log_probs_are_taken_for_those_of_arguments() -> None:
    logprobs = {"content": [{"token": "<call>", "logprob": -0.5}]}
    choice = read(completion(call_of(ANSWER), logprobs=logprobs))
    assert (choice.logprob, choice.tokens) == (None, None)


def test_ratings_are_read_out_of_a_call() -> None:
    choice = read(completion(call_of({"ae": 3, "io": 0})))
    assert read_ratings({"text": choice.text}, ["ae", "io"]) == {"ae": 3.0, "io": 0.0}


# (where it was reported, message, whether another schema may be taken)
REFUSED = [
    ("can1357/oh-my-pi/issues/12939", 'tool_choice: type "tool" and "any" are not supported for this model.', False),
    ("Yeachan-Heo/gajae-code/pull/480", "tool_choice forces tool use is not compatible with this model", False),
    ("usestrix/strix/issues/503", "Thinking may not be enabled when tool_choice forces tool use.", False),
    ("deepseek-ai/DeepSeek-V3/issues/1376", "Thinking mode does not support this tool_choice", False),
    ("from memory: Ollama", "registry.ollama.ai/library/m does not support tools", False),
    ("from memory: OpenRouter", "No endpoints found that support tool use", False),
    ("made up", "Function calling is not enabled for this model", False),
    ("made up", "Unrecognized request argument supplied: tools", False),
    ("made up", "property 'toolChoice' is unsupported", False),
    ("lidge-jun/opencodex/issues/75", "tools.0.custom.input_schema.type: Field required", True),
    (
        "windoze95/cantinarr/issues/497",
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        True,
    ),
    (
        "anthropics/claude-code/issues/86664",
        "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
        True,
    ),
    (
        "n8n-io/n8n/issues/30590",
        "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
        True,
    ),
    ("made up: a filter's word as a name", "tools.0.custom.input_schema.properties.flagged: not allowed", True),
    ("from memory: OpenAI", "Invalid schema for function 'answer': 'x' is not of type 'object'", True),
]


@pytest.mark.parametrize(("source", "message", "is_of_schema"), REFUSED)
def test_a_tool_that_is_refused_is_asked_for_no_more(source: str, message: str, is_of_schema: bool) -> None:
    raw = json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None}}).encode()
    lesson = lesson_of_refusal(400, raw, chat_body(REQUEST, "m", TeacherCaps(), ANTHROPIC), ANTHROPIC)
    assert lesson == replace(TO_FREE, scope=schema_digest(SCHEMA) if is_of_schema else "")


@pytest.mark.parametrize("param", ["tools", "tool_choice", "tools[0].function.parameters", "tools.0.custom"])
def test_a_tool_is_known_by_the_place_that_a_refusal_names(param: str) -> None:
    raw = json.dumps({"error": {"message": "Bad value.", "param": param}}).encode()
    lesson = lesson_of_refusal(400, raw, chat_body(REQUEST, "m", TeacherCaps(), ANTHROPIC), ANTHROPIC)
    assert lesson is not None
    assert (lesson.option, lesson.value) == (Option.RESPONSE_FORMAT, "text")


def test_without_a_tool_in_the_request_no_refusal_is_about_one() -> None:
    raw = b'{"error": {"message": "This function takes no n. Use it as a tool."}}'
    sent = chat_body(replace(REQUEST, n=3), "m", TeacherCaps(), DIALECTS["openai"])
    assert lesson_of_refusal(404, raw, sent, DIALECTS["openai"]) is None


def test_a_line_of_a_batch_is_read_and_learnt_from_as_a_live_call() -> None:
    sent = BatchRequest(name="a", request=REQUEST, body=chat_body(REQUEST, "m", TeacherCaps(), ANTHROPIC))
    assert BatchRequest.from_json(sent.to_json()) == sent
    response = {"status_code": 200, "body": completion(call_of(ANSWER))}
    refusal = {"status_code": 400, "body": {"error": {"message": REFUSED[0][1]}}}
    rows = [json.dumps({"custom_id": name, "response": r}).encode() for name, r in [("a", response), ("b", refusal)]]
    answered, refused = read_lines(rows)
    read_answer = answer_of(answered, sent)
    assert isinstance(read_answer, Answer)
    assert read_answer.choices[0].text == ANSWER
    assert lesson_of(refused, sent, ANTHROPIC, ()) == TO_FREE


def test_the_definition_of_a_tool_is_counted_into_the_prompt_and_into_what_is_reserved() -> None:
    plain = replace(REQUEST, as_tool=False)
    added = most_tool_tokens(REQUEST.answer_schema)
    assert added > len(REQUEST.answer_schema)
    assert most_input_tokens(REQUEST) == most_input_tokens(plain) + added
    assert 800 < likely_input_tokens(REQUEST) - likely_input_tokens(plain) < added
    reserved = price().most_microusd(input_tokens=most_input_tokens(REQUEST), output_tokens=REQUEST.most_output_tokens)
    assert worst_cost(price(), REQUEST) == reserved > worst_cost(price(), plain)
    assert most_tool_tokens('{"type": "array"}') == most_tool_tokens("") == 0


def script(messages: Sequence[Mapping[str, Any]], n: int) -> list[str]:
    return [ANSWER] * n


def ask(endpoint: Endpoint, request: CompletionRequest = REQUEST) -> tuple[Completion, OpenAICompatibleTeacher]:
    teacher = OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model=endpoint.vendor.model),
        base_url=endpoint.base_url,
        api_key=None,
        caps=TeacherCaps(),
        dialect=ANTHROPIC,
        allowed_origins=frozenset({endpoint.base_url}),
    )
    try:
        return teacher.complete(request, deadline_s=30.0), teacher
    finally:
        teacher.close()


def ask_at(
    vendor: Vendor, request: CompletionRequest = REQUEST
) -> tuple[Completion, OpenAICompatibleTeacher, Endpoint]:
    with serving(vendor, script) as endpoint:
        return *ask(endpoint, request), endpoint


def test_anthropic_answers_a_json_task_by_a_call_and_no_count_is_disputed() -> None:
    answered, teacher, endpoint = ask_at(BY_NAME["anthropic"])
    assert [choice.text for choice in answered.choices] == [ANSWER]
    assert "tools" in endpoint.answered[0]
    assert teacher.lessons == (Lesson(option=Option.TEMPERATURE),)
    assert not answered.usage.disputed
    assert answered.usage.input_tokens > 410


def test_a_model_that_refuses_forced_tools_answers_in_free_text_and_that_is_kept() -> None:
    answered, teacher, endpoint = ask_at(replace(BY_NAME["anthropic"], refuse=refuse_forced_tools))
    assert [choice.text for choice in answered.choices] == [ANSWER]
    assert TO_FREE in teacher.lessons
    assert not {"tools", "tool_choice", "response_format"} & set(endpoint.answered[0])
    assert [lesson.sentence for lesson in teacher.lessons if lesson.value] == ["response_format: text"]


@pytest.mark.parametrize("key", ["größe", "a b", "x" * 65])
def test_a_schema_that_no_tool_takes_weakens_its_own_calls_alone(key: str) -> None:
    schema = {"type": "object", "properties": {key: {"type": "string"}}}
    _, teacher, endpoint = ask_at(BY_NAME["anthropic"], replace(REQUEST, answer_schema=json.dumps(schema)))
    assert replace(TO_FREE, scope=schema_digest(schema)) in teacher.lessons
    assert "tools" not in endpoint.answered[0]
    assert "tools" in teacher.body_of(REQUEST, teacher.lessons)


def test_the_answer_of_an_endpoint_that_calls_nothing_is_read_in_its_content() -> None:
    answered, teacher, endpoint = ask_at(replace(BY_NAME["anthropic"], calls_tools=False))
    assert [choice.text for choice in answered.choices] == [ANSWER]
    assert "tools" in endpoint.answered[0]
    assert TO_FREE not in teacher.lessons
