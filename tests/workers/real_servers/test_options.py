"""Each option of a request at each real server: whether it does what it is for, is ignored, or is refused, held to the
server's row in the table of dialects. It would catch a row that rests on a page which the server has left behind: an
option that is sent for nothing, and one that is left out though it would help."""

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import httpx
import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.dialects.dialect import Option
from backend.domain.dialects.table import BY_NAME
from tests.workers.real_servers.servers import RealServer
from workers.teachers.openai_compatible.bodies import GENERATION_CONFIG

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
MESSAGES = [{"role": "user", "content": "Write a word that rhymes with house."}]
# labelling asks for JSON in words as well; "louse" is not in the schema
FOR_JSON = [{"role": "user", "content": f'{MESSAGES[0]["content"]} Answer with JSON like {{"word": "louse"}}.'}]
SCHEMA = {
    "type": "object",
    "properties": {"word": {"enum": ["mouse", "grouse"]}},
    "required": ["word"],
    "additionalProperties": False,
}
HELD = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
SHORT = 8  # tokens of an answer
# options that work and that a row leaves out all the same
LEFT_OUT = {("llama-server", Option.N): "it counts the tokens of the first choice alone"}
Answer = dict[str, Any]


class Outcome(StrEnum):
    """What becomes of an option."""

    WORKS = "works"
    IGNORED = "ignored"
    REFUSED = "refused"


class Refused(Exception):
    """The server's words."""


class Asker:
    """Asks a server, raw: no client of ours in between."""

    def __init__(self, server: RealServer) -> None:
        self._server = server

    def __call__(self, **fields: Any) -> Answer:
        """Raises Refused."""
        body = {"model": self._server.model, "messages": MESSAGES, "max_tokens": SHORT, "temperature": 0} | fields
        if Option.DO_SAMPLE in BY_NAME[self._server.name].takes and body["temperature"]:
            body = {GENERATION_CONFIG: '{"do_sample": true}'} | body
        body = {name: value for name, value in body.items() if value is not None}
        reply = httpx.post(f"{self._server.base_url}/chat/completions", json=body, timeout=300)
        if reply.status_code != 200:
            raise Refused(f"{reply.status_code}: {reply.text[:500]}")
        answer: Answer = reply.json()
        return answer


def text(answer: Answer) -> str:
    return str(answer["choices"][0]["message"]["content"])


def rows(answer: Answer) -> list[Any]:
    return list((answer["choices"][0].get("logprobs") or {}).get("content") or [])


def limits(ask: Asker) -> bool:
    answer = ask(max_tokens=3, messages=[{"role": "user", "content": "Count from one to fifty in words."}])
    return bool(answer["usage"]["completion_tokens"] <= 3)


def heats(ask: Asker) -> bool:
    """At 0 it is one text; at 2 it is hardly ever the same one three times."""
    hot = {text(ask(temperature=2.0, seed=seed)) for seed in (1, 2, 3)}
    return text(ask()) == text(ask()) and len(hot) > 1


def cuts_the_tail(ask: Asker) -> bool:
    """Of a heat that would give another text."""
    cut = text(ask(temperature=1.5, top_p=0.0001, seed=1))
    return cut == text(ask()) != text(ask(temperature=1.5, seed=1))


def keeps_the_likeliest(ask: Asker) -> bool:
    kept = text(ask(temperature=1.5, top_k=1, seed=1))
    return kept == text(ask()) != text(ask(temperature=1.5, seed=1))


def gives_several(ask: Asker) -> bool:
    return len(ask(temperature=1.0, n=2)["choices"]) == 2


def repeats(ask: Asker) -> bool:
    """The same seed gives the same text, at a heat where another gives another."""
    return text(ask(temperature=2.0, seed=5)) == text(ask(temperature=2.0, seed=5)) and heats(ask)


def tells_logprobs(ask: Asker) -> bool:
    found = rows(ask(logprobs=True))
    return bool(found) and all(row["logprob"] <= 0 for row in found)


def tells_alternatives(ask: Asker) -> bool:
    found = rows(ask(logprobs=True, top_logprobs=3))
    return bool(found) and all(len(row["top_logprobs"]) >= 3 for row in found)


def holds_to_a_schema(ask: Asker) -> bool:
    answer = text(ask(response_format=HELD, messages=FOR_JSON, max_tokens=32))
    try:
        return not validator(SCHEMA)(json.loads(answer))
    except ValueError:
        return False


def is_told_apart(ask: Asker) -> bool:
    """A system message is read: the prompt grows by it."""
    system = {"role": "system", "content": "Answer in German, whatever the question."}
    longer = ask(messages=[system, *MESSAGES])
    return bool(longer["usage"]["prompt_tokens"] > ask()["usage"]["prompt_tokens"] + 5)


PROBES: dict[Option, Callable[[Asker], bool]] = {
    Option.TOKEN_LIMIT: limits,
    Option.TEMPERATURE: heats,
    Option.TOP_P: cuts_the_tail,
    Option.TOP_K: keeps_the_likeliest,
    Option.N: gives_several,
    Option.SEED: repeats,
    Option.LOGPROBS: tells_logprobs,
    Option.TOP_LOGPROBS: tells_alternatives,
    Option.RESPONSE_FORMAT: holds_to_a_schema,
    Option.SYSTEM_ROLE: is_told_apart,
}


def outcome(server: RealServer, option: Option) -> tuple[Outcome, str]:
    """What becomes of the option, and the server's words where it refuses it."""
    try:
        return (Outcome.WORKS if PROBES[option](Asker(server)) else Outcome.IGNORED), ""
    except Refused as refusal:
        return Outcome.REFUSED, str(refusal)


@pytest.mark.parametrize("option", PROBES, ids=str)
def test_an_option_does_at_a_server_what_its_row_says(server: RealServer, option: Option) -> None:
    became, words = outcome(server, option)
    print(f"{server.name} {server.version}: {option} is {became} {words}")
    takes = BY_NAME[server.name].takes | {Option.TOKEN_LIMIT}
    is_wanted = option in takes or (server.name, option) in LEFT_OUT
    assert (became is Outcome.WORKS) == is_wanted, (became, words)


def test_transformers_draws_nothing_where_it_is_not_asked_to(server: RealServer) -> None:
    """Why its row has an option of its own; Gemma's settings, as we make them, say nothing of drawing."""
    if server.name != "transformers":
        pytest.skip("of transformers alone a temperature does nothing by itself")
    ask = Asker(server)
    hot = [text(ask(temperature=2.0, seed=seed, generation_config=None)) for seed in (1, 2)]
    assert hot == [text(ask())] * 2


def test_why_a_row_leaves_out_what_works_is_still_so(server: RealServer) -> None:
    """A release that counts all choices would have its row changed."""
    if server.name != "llama-server":
        pytest.skip("of llama-server alone an option is left out that works")
    answer = Asker(server)(n=2, temperature=1.0, logprobs=True)
    n_shown = sum(len(choice["logprobs"]["content"]) for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] < n_shown - 2


def test_a_schema_bounds_white_space_at_llama_server_and_not_at_vllm(server: RealServer) -> None:
    """Where no word asks for JSON. Why preflight knows `answer_white_space`; a release of vLLM that bounds it would
    have the page changed."""
    if server.name == "transformers":
        pytest.skip("transformers knows no schema")
    answer = text(Asker(server)(response_format=HELD, max_tokens=64))
    print(repr(answer))
    assert ("word" in answer) == (server.name == "llama-server")
    assert "word" in answer or answer.strip() == "{"


def test_an_effort_is_taken_or_refused_as_its_row_says(server: RealServer) -> None:
    """A model that does not think answers the same with it."""
    try:
        Asker(server)(reasoning_effort="low")
        words = ""
    except Refused as refusal:
        words = str(refusal)
    if Option.EFFORT in BY_NAME[server.name].takes:
        assert words == ""
