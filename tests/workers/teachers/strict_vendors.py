"""Sixteen endpoints on loopback, each as strict as the vendor or server it stands for: what that refuses is refused
with its status and its words, and what it ignores is ignored. Where a vendor's words come from is said beside them.

They write what `Script` has for them, in the vendor's own shape: thoughts in a field, in the text, or in parts.
"""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = Mapping[str, Any]
Refusal = tuple[int, Any]
THOUGHT_TOKENS = 300  # what a model that thinks writes before each answer
TOOL_TOKENS = 410  # what the anthropic double's model adds to a prompt where a tool is forced, by the vendor's page
PLAIN = {"model", "messages", "temperature", "top_p", "stop", "stream", "response_format", "tools", "user"}
OPENAI = PLAIN | {"max_tokens", "max_completion_tokens", "n", "seed", "logprobs", "top_logprobs", "prompt_cache_key"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """`fields` are those it knows, None: it ignores what it does not know. `limits` are the names under which it reads
    the token limit. `thoughts` says where they stand ("" for none), `counts_thoughts` whether they are within the
    reported output; `reads_n` whether it gives several choices, `calls_tools` whether it calls a tool that is
    forced."""

    name: str
    model: str
    dialect: str
    refuse: Callable[[Body], Refusal | None]
    limits: tuple[str, ...] = ("max_tokens",)
    thoughts: str = ""
    counts_thoughts: bool = True
    reads_n: bool = True
    calls_tools: bool = False


def _error(message: str, *, param: str | None = None, code: str | None = None) -> Refusal:
    return 400, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def _unknown(body: Body, known: set[str]) -> list[str]:
    return [name for name in body if name not in known]


def _openai(body: Body) -> Refusal | None:
    # https://github.com/AAswordman/Operit/issues/1048
    for name in _unknown(body, OPENAI):
        return _error(f"Unrecognized request argument supplied: {name}")
    return None


def _openai_reasoning(body: Body) -> Refusal | None:
    # https://github.com/fish2018/YPrompt/issues/26
    if "max_tokens" in body:
        told = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return _error(told, param="max_tokens", code="unsupported_parameter")
    # https://github.com/diffbot/code-gpt-docs/issues/445
    if body.get("temperature", 1) != 1:
        told = (
            f"Unsupported value: 'temperature' does not support {body['temperature']} with this model. "
            "Only the default (1) value is supported."
        )
        return _error(told, param="temperature", code="unsupported_value")
    # https://github.com/langchain4j/langchain4j/issues/3258
    for name in ("top_p", "logprobs", "top_logprobs", "logit_bias"):
        if name in body:
            return _error(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
    for name in _unknown(body, OPENAI | {"reasoning_effort"}):
        return _error(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    return None


def _azure(body: Body) -> Refusal | None:
    # https://github.com/spring-projects/spring-ai/issues/5016
    if "logprobs" in body:
        return _error("The deployment doesn't support logprobs request parameter.", code="422")
    return _openai_reasoning(body)


def _anthropic(body: Body) -> Refusal | None:
    # https://docs.anthropic.com/en/api/openai-sdk: n "must be exactly 1"; much else is ignored
    if body.get("n", 1) != 1:
        return _error("n: must be exactly 1")
    # https://github.com/pollinations/pollinations/pull/11319
    if "temperature" in body:
        return _error("`temperature` is deprecated for this model")
    for i, tool in enumerate(body.get("tools", ())):
        fault = _tool_fault(tool["function"]["parameters"])
        if fault:
            return _error(f"tools.{i}.custom.{fault}", code="invalid_request_error")
    return None


def _tool_fault(schema: Mapping[str, Any]) -> str | None:
    # https://github.com/windoze95/cantinarr/issues/497
    if {"oneOf", "allOf", "anyOf"} & set(schema):
        return "input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    # https://github.com/lidge-jun/opencodex/issues/75
    if "type" not in schema:
        return "input_schema.type: Field required"
    # from memory: what is an object's and is something else
    if schema["type"] != "object":
        return "input_schema.type: Input should be 'object'"
    # https://github.com/n8n-io/n8n/issues/30590
    if not all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in schema.get("properties", {})):
        return "input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
    return None


def refuse_forced_tools(body: Body) -> Refusal | None:
    """Refuse as Anthropic's newest models do."""
    # https://github.com/can1357/oh-my-pi/issues/12939
    if "tool_choice" in body:
        return _error('tool_choice: type "tool" and "any" are not supported for this model.')
    return _anthropic(body)


def _google(message: str) -> Refusal:
    violations = [{"description": message}]
    error = {
        "code": 400,
        "message": message,
        "status": "INVALID_ARGUMENT",
        "details": [{"fieldViolations": violations}],
    }
    return 400, [{"error": error}]


def _gemini(body: Body) -> Refusal | None:
    # https://github.com/n4ze3m/page-assist/issues/418
    known = PLAIN | {"max_tokens", "max_completion_tokens", "n", "reasoning_effort"}
    unknown = [
        f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.' for name in _unknown(body, known)
    ]
    if unknown:
        return _google("\n".join(unknown))
    # as logged by clients of the Gemini 3 generation
    return _google("Multiple candidates is not enabled for this model") if body.get("n", 1) != 1 else None


def _mistral(body: Body) -> Refusal | None:
    # https://github.com/editor-code-assistant/eca/issues/231
    known = PLAIN - {"user"} | {"max_tokens", "n", "random_seed", "prompt_cache_key", "reasoning_effort"}
    unknown = _unknown(body, known)
    if not unknown:
        return None
    detail = [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": body[name]}
        for name in unknown
    ]
    return 422, {"object": "error", "message": {"detail": detail}, "type": "invalid_request_error", "param": None}


def _groq(body: Body) -> Refusal | None:
    # https://console.groq.com/docs/openai
    known = PLAIN | {"max_tokens", "max_completion_tokens", "n", "seed", "reasoning_effort"}
    for name in _unknown(body, known):
        return _error(f"property '{name}' is unsupported")
    # as logged by a Groq client, 2026
    if body.get("n", 1) > 1:
        return _error("'n' : number must be at most 1")
    # https://github.com/iamsrikanthnani/pluely/issues/242
    if "reasoning_effort" in body:
        return _error("`reasoning_effort` is not supported with this model")
    return None


def _deepseek(body: Body) -> Refusal | None:
    # https://github.com/crewAIInc/crewAI/issues/5990
    if body.get("response_format", {}).get("type") == "json_schema":
        return _error("This response_format type is unavailable now", code="invalid_request_error")
    limit = body.get("max_tokens", 1)
    if not 1 <= limit <= 8192:
        return _error("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")
    return None


def _fireworks(body: Body) -> Refusal | None:
    # https://github.com/vercel/ai/pull/18306
    for name in _unknown(body, OPENAI | {"top_k", "reasoning_effort"}):
        return 400, {"error": f"Extra inputs are not permitted, field: '{name}', value: {body[name]!r}"}
    return None


def _cerebras(body: Body) -> Refusal | None:
    # https://github.com/Alishahryar1/free-claude-code/issues/1136
    unknown = _unknown(body, PLAIN | {"max_completion_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort"})
    if not unknown:
        return None
    told = "\n".join(f"{name}: property '{name}' is unsupported" for name in unknown)
    return _error(told, param="validation_error", code="wrong_api_format")


def _xai(body: Body) -> Refusal | None:
    # https://github.com/BerriAI/litellm/pull/16265
    spelt = {"reasoning_effort": "reasoningEffort", "logprobs": "logprobs", "top_k": "topK"}
    for name, said in spelt.items():
        if name in body:
            told = f"Model {body['model']} does not support parameter {said}."
            return 400, {"code": "Client specified an invalid argument", "error": told}
    return None


def _llama_server(body: Body) -> Refusal | None:
    # an old build's words, as quoted in public sources
    if body.get("n", 1) != 1:
        return 500, {"error": {"code": 500, "message": "Only one completion choice is allowed", "type": "server_error"}}
    return None


def _transformers(body: Body) -> Refusal | None:
    # as 5.19.0 was seen to answer on 2026-11-26 (tests/workers/real_servers): of OpenAI's fields it ignores those that
    # it has no use for, what else it does not know it refuses
    unknown = set(_unknown(body, OPENAI | {"reasoning_effort", "generation_config", "chat_template_kwargs"}))
    return (422, {"detail": f"Unexpected fields in the request: {unknown}"}) if unknown else None


def _nothing(body: Body) -> Refusal | None:
    # https://github.com/mozilla-ai/any-llm/issues/714: it says that something is wrong, and not what
    if {"seed", "logprobs", "response_format"} & set(body):
        return 400, {"message": "Input validation error", "type_": "invalid_request_error"}
    return None


# what a filter refuses, in the words of its vendor
CONTENT_REFUSALS: dict[str, Refusal] = {
    # https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter
    "azure": (
        400,
        {
            "error": {
                "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management "
                "policy. Please modify your prompt and retry.",
                "type": None,
                "param": "prompt",
                "code": "content_filter",
                "status": 400,
                "innererror": {
                    "code": "ResponsibleAIPolicyViolation",
                    "content_filter_result": {"violence": {"filtered": True, "severity": "high"}},
                },
            }
        },
    ),
    # https://github.com/BeehiveInnovations/pal-mcp-server/issues/178
    "openai": _error(
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a "
        "different prompt: https://platform.openai.com/docs/guides/reasoning#advice-on-prompting",
        code="invalid_prompt",
    ),
    # https://github.com/666ghj/BettaFish/issues/108
    "deepseek": _error("Content Exists Risk", code="invalid_request_error"),
    # https://github.com/UKGovernmentBEIS/inspect_ai/pull/2267
    "xai": (
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. Team: t, API key ID: k, Model: grok-4-0709, Failed check: "
            "SAFETY_CHECK_TYPE_BIO",
        },
    ),
}
BOTH = ("max_completion_tokens", "max_tokens")
VENDORS = (
    Vendor(name="openai", model="gpt-4o-mini", dialect="openai", refuse=_openai, limits=BOTH),
    Vendor(
        name="openai-reasoning",
        model="gpt-5-mini",
        dialect="openai-reasoning",
        refuse=_openai_reasoning,
        limits=BOTH,
        thoughts="hidden",
    ),
    Vendor(name="azure", model="prod", dialect="azure-openai", refuse=_azure, limits=BOTH, thoughts="hidden"),
    Vendor(
        name="anthropic",
        model="claude-opus-4-8",
        dialect="anthropic",
        refuse=_anthropic,
        limits=BOTH,
        reads_n=False,
        calls_tools=True,
    ),
    Vendor(
        name="gemini",
        model="gemini-3-flash",
        dialect="gemini",
        refuse=_gemini,
        limits=BOTH,
        thoughts="hidden",
        counts_thoughts=False,
    ),
    Vendor(name="mistral", model="mistral-small", dialect="mistral", refuse=_mistral),
    Vendor(name="magistral", model="magistral-medium", dialect="mistral-reasoning", refuse=_mistral, thoughts="parts"),
    Vendor(name="groq", model="llama-3.3-70b", dialect="groq", refuse=_groq, limits=BOTH),
    Vendor(name="deepseek", model="deepseek-v4", dialect="deepseek", refuse=_deepseek, thoughts="field", reads_n=False),
    Vendor(name="fireworks", model="accounts/x", dialect="fireworks", refuse=_fireworks, limits=BOTH),
    Vendor(name="cerebras", model="llama-4", dialect="cerebras", refuse=_cerebras, limits=("max_completion_tokens",)),
    Vendor(
        name="xai",
        model="grok-4",
        dialect="xai",
        refuse=_xai,
        limits=BOTH,
        thoughts="hidden",
        counts_thoughts=False,
    ),
    Vendor(name="llama-server", model="qwen3", dialect="llama-server", refuse=_llama_server, thoughts="text"),
    Vendor(name="ollama", model="qwen3", dialect="ollama", refuse=lambda body: None, reads_n=False, thoughts="field"),
    Vendor(name="transformers", model="smollm", dialect="transformers", refuse=_transformers, reads_n=False),
    Vendor(name="nameless", model="m", dialect="together", refuse=_nothing),
)
BY_NAME = {vendor.name: vendor for vendor in VENDORS}
Script = Callable[[Sequence[Mapping[str, Any]], int], Sequence[str]]


@dataclass(slots=True)
class Endpoint:
    """A running vendor: what it was asked and answered, and what it refused."""

    vendor: Vendor
    script: Script
    base_url: str = ""
    answered: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, body: dict[str, Any]) -> tuple[int, Any]:
        refusal = self.vendor.refuse(body)
        with self.guard:
            if refusal is not None:
                self.refused.append(body)
                return refusal
            self.answered.append(body)
            n = body.get("n", 1) if self.vendor.reads_n else 1
            texts = list(self.script([_plain(message) for message in body["messages"]], n))[:n]
        limit = next((body[name] for name in self.vendor.limits if name in body), 100_000)
        return 200, self._completion(body, texts, limit)

    def _completion(self, body: dict[str, Any], texts: list[str], limit: int) -> dict[str, Any]:
        room = limit - (THOUGHT_TOKENS if self.vendor.thoughts else 0)
        choices = [self._choice(i, text, room) for i, text in enumerate(texts)]
        n_in = sum(len(str(message["content"])) for message in body["messages"]) // 4
        if self.vendor.calls_tools and "tool_choice" in body:
            choices = [_as_call(choice, body["tool_choice"]["function"]["name"]) for choice in choices]
            n_in += TOOL_TOKENS + len(json.dumps(body["tools"])) // 4
        n_out = sum(min(limit, max(1, len(text) // 4)) for text in texts if room > 0)
        thought = min(limit, THOUGHT_TOKENS) * len(texts) if self.vendor.thoughts else 0
        usage = {"prompt_tokens": n_in, "total_tokens": n_in + n_out + thought}
        usage["completion_tokens"] = n_out + thought if self.vendor.counts_thoughts else n_out
        details = {"completion_tokens_details": {"reasoning_tokens": thought}} if thought else {}
        return {"choices": choices, "usage": usage | (details if self.vendor.counts_thoughts else {})}

    def _choice(self, i: int, text: str, room: int) -> dict[str, Any]:
        is_cut = len(text) // 4 > room
        said = text[: max(0, 4 * room)]
        message: dict[str, Any] = {"role": "assistant", "content": said}
        match self.vendor.thoughts:
            case "field":
                message["reasoning_content"] = "let me see"
            case "text":
                message["content"] = f"<think>let me see</think>\n{said}" if room > 0 else "<think>let me"
            case "parts":
                thought = {"type": "thinking", "thinking": [{"type": "text", "text": "let me see"}]}
                message["content"] = [thought, {"type": "text", "text": said}] if said else [thought]
        return {"index": i, "message": message, "finish_reason": "length" if is_cut or room <= 0 else "stop"}


def _as_call(choice: dict[str, Any], name: str) -> dict[str, Any]:
    """The choice as a call of a tool with what would have been said as its arguments."""
    function = {"name": name, "arguments": choice["message"]["content"]}
    call = {"id": f"toolu_{choice['index']}", "type": "function", "function": function}
    finish = "tool_calls" if choice["finish_reason"] == "stop" else choice["finish_reason"]
    message = choice["message"] | {"content": None, "tool_calls": [call]}
    return choice | {"message": message, "finish_reason": finish}


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return {"role": message["role"], "content": text}


@contextlib.contextmanager
def serving(vendor: Vendor, script: Script) -> Iterator[Endpoint]:
    """A running endpoint for the length of the block."""
    endpoint = Endpoint(vendor, script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, value = endpoint.answer(body)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="strict-vendor")
    thread.start()
    endpoint.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
