"""Tool calls: passed to the chat template, and read from answers of the Hermes convention."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.bodies.chats import chat_call
from gpu_runners.serving.openai.tools import ToolReader, is_hermes, takes_tools

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'


def read(text: str, sizes: list[int]) -> tuple[str, list[tuple[str, str]]]:
    reader, content, at = ToolReader(), "", 0
    while at < len(text):
        size = sizes[at % len(sizes)]
        content += reader.push(text[at : at + size])
        at += size
    held, calls = reader.finish()
    return content + held, [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_calls_are_found_however_the_text_comes(sizes: list[int]) -> None:
    weather = ("weather", json.dumps({"city": "Köln"}, ensure_ascii=False))
    assert read(f"Let me look.\n{CALL}\n{CALL}", sizes) == ("Let me look.", [weather, weather])
    assert read("no call, just <tool and <b>", sizes) == ("no call, just <tool and <b>", [])
    for broken in ("<tool_call>{]</tool_call>", "<tool_call>{}", CALL[:-3], "<tool_call>[1]</tool_call>"):
        content, calls = read(f"x{broken}", sizes)
        assert (content, calls) == (f"x{broken}", [])


def test_which_templates_take_and_make_calls() -> None:
    assert takes_tools("{% if tools %}")
    assert not takes_tools("{{ messages }}")
    assert is_hermes("... <tool_call> ...")


def test_past_calls_reach_the_template_with_their_arguments_as_objects() -> None:
    function = {"name": "weather", "arguments": '{"city": "Köln"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    asked = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    messages = chat_call({"model": "m", "messages": asked}).messages
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"city": "Köln"}
    assert messages[2] == {"role": "tool", "content": "rain", "tool_call_id": "call_1"}
    function["arguments"] = "{"
    with pytest.raises(BadRequest, match="no JSON"):
        chat_call({"model": "m", "messages": asked})


def test_tools_that_may_not_be_called_are_not_offered() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    assert chat_call(body).tools == (tool,)
    assert chat_call(body | {"tool_choice": "none"}).tools == ()
