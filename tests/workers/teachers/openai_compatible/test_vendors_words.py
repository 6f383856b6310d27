"""What vendors say of a model, a key or a path that is wrong: each has the fault that it is, whatever its words. The
words are as they were reported at the page named beside them, or as public repositories quote them ("quoted"), or from
memory."""

import json
from typing import Any

import pytest

from backend.domain.dialects.faults import TeacherFault
from tests.workers.teachers.hostile import HostileTeacher, answer
from tests.workers.teachers.openai_compatible.test_endpoint_faults import PAGE, error, teacher_at
from tests.workers.teachers.openai_compatible.test_teacher import REQUEST, assert_no_secret
from workers.teachers.openai_compatible.endpoint_faults import fault_of
from workers.teachers.protocol import TeacherFailed

Case = tuple[str, int, bytes]


def refusal(message: str, **fields: Any) -> bytes:
    return error({"message": message, **fields})


def flat(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


NO_SUCH_MODEL: list[Case] = [
    # quoted
    ("vllm", 404, refusal("The model `Qwen/Qwen2.5-7B-Instruct` does not exist.", type="NotFoundError", param="model")),
    ("vllm before it had param", 404, flat(object="error", message="The model `Qwen/Qwen2.5-7B` does not exist.")),
    ("ollama", 404, refusal("model 'llama3.2' not found", type="api_error", param=None, code=None)),
    ("ollama before", 404, refusal('model "qwen2.5:7b" not found, try pulling it first', type="api_error")),
    (
        "gemini",
        404,
        refusal("models/gemini-9-pro is not found for API version v1main, or is not supported for generateC"),
    ),
    # https://github.com/truefoundry/models/pull/946
    (
        "vertex",
        404,
        b"["
        + refusal(
            "Publisher Model `projects/p/locations/us-central1/publishers/google/models/gemini-2.5-foo` was not found "
            "or your project does not have access to it. Please ensure you are using a valid model version. For more "
            "information, see: https://cloud.google.com/vertex-ai/generative-ai/docs/learn/model-versions",
            status="NOT_FOUND",
        )
        + b"]",
    ),
    # https://github.com/yihong0618/bilingual_book_maker/issues/464
    (
        "xai",
        404,
        flat(
            code="Some requested entity was not found",
            error="The model grok-4.9 does not exist or your team t-1 does not have access to it. Please ensure you're "
            "using the correct API key. If you believe this is a mistake, please contact support.",
        ),
    ),
    ("anthropic", 404, flat(type="error", error={"type": "not_found_error", "message": "model: claude-foo"})),
    # https://github.com/chatboxai/chatbox/issues/861
    (
        "azure",
        404,
        refusal(
            "The API deployment for this resource does not exist. If you created the deployment within the last 5 "
            "minutes, please wait a moment and try again.",
            code="DeploymentNotFound",
        ),
    ),
    # https://github.com/evo-design/evo/issues/14
    ("together", 404, refusal("Unable to access model a/b. Please visit https://api.together.xyz to see the list")),
    # https://github.com/HeyPuter/puter/issues/3168
    ("together without a server of its own", 400, refusal("Unable to access non-serverless model mistralai/M-2.1-x.")),
    ("openai", 404, refusal("The model `gpt-5.9` does not exist or you do not have access to it.", code="x")),
    # https://github.com/nicepkg/aide/issues/28
    ("openai by form", 400, refusal("invalid model ID", type="invalid_request_error", param=None)),
    # https://github.com/decolua/9router/pull/3558
    ("groq", 404, refusal("The model `llama-3.3-70b-versatile` does not exist or you do not have access to it.")),
    # https://github.com/valentinfrlch/ha-llmvision/issues/324
    (
        "groq, shut down",
        400,
        refusal(
            "The model `llama-3.2-11b` has been decommissioned and is no longer supported.", code="model_decommissioned"
        ),
    ),
    # https://github.com/warpdotdev/warp/issues/15107
    ("fireworks", 404, refusal("Model not found, inaccessible, and/or not deployed", param="model", code="NOT_FOUND")),
    # https://github.com/tmc/langchaingo/issues/1233
    ("mistral", 400, flat(object="error", message="Invalid model: x", type="invalid_model", code="1500")),
    # https://github.com/deepwn/addi/issues/13
    ("deepseek", 400, refusal("Model Not Exist", type="invalid_request_error", code="invalid_request_error")),
    # https://github.com/assafelovic/gpt-researcher/issues/1556
    ("lm studio", 400, refusal('Invalid model identifier "o4-mini". Please specify a valid downloaded model')),
    ("lm studio without a model", 400, flat(error="No models loaded. Please load a model in the developer page")),
    # from memory
    ("llama-server's router", 400, refusal("model 'gemma-3.1' not found", type="invalid_request_error")),
    # https://github.com/continuedev/continue/issues/10322
    ("openrouter", 400, refusal("deepseek-r1.1-chimera:free is not a valid model ID", code=400)),
    # https://github.com/vyancharuk/nodejs-api-boilerplate/issues/16
    ("openrouter without a provider", 404, refusal("No endpoints found for a/hermes-3-llama-3.1-405b:free.", code=404)),
    # https://github.com/iOfficeAI/AionCore/pull/377
    ("bedrock", 400, flat(message="The provided model identifier is invalid.")),
    # from memory
    ("bedrock, by a profile alone", 400, flat(message="Invocation of model ID m-1 with on-demand throughput isn’t x")),
    # https://github.com/continuedev/continue/issues/11177
    ("litellm", 400, flat(error="/chat/completions: Invalid model name passed in model=ollama/x. Call `/v1/models`")),
    # quoted
    ("moonshot", 404, refusal("Not found the model kimi-k2.5 or Permission denied", type="resource_not_found_error")),
    ("nvidia", 404, flat(status=404, title="Not Found", detail="Function '9b96-x': Not found for account 'a'")),
    ("nvidia, shut down", 410, flat(detail="The model 'a/b-3.1' has reached its end of life on 2026-01-01")),
    # from memory
    ("zhipu", 400, refusal("模型不存在，请检查模型代码。", code="1211")),
    ("github models", 400, refusal("Unknown model: gpt-9", code="unknown_model")),
    (
        "a gateway that checks names",
        422,
        flat(detail=[{"loc": ["body", "model"], "msg": "Input should be 'a' or 'b'"}]),
    ),
    ("a vendor that says where alone", 404, refusal("Unknown.", param="model")),
]
NOT_CHAT: list[Case] = [
    # https://github.com/n8n-io/n8n/issues/18352
    (
        "openai's responses",
        404,
        refusal("This model is only supported in v1/responses and not in v1/chat/completions.", param="model"),
    ),
    # https://github.com/micz/ThunderAI/issues/570
    (
        "openai's completions",
        404,
        refusal(
            "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use "
            "v1/completions?",
            param="model",
        ),
    ),
    # https://github.com/mnfst/llm-gateway/issues/2657
    ("bedrock", 400, refusal("The model 'openai.gpt-5.6-luna' does not support the '/v1/chat/completions' API")),
    # quoted
    ("vllm", 400, flat(object="error", message="The model does not support Chat Completions API", code=400)),
    # from memory
    ("ollama", 400, refusal('"nomic-embed-text" does not support chat')),
    ("azure", 400, refusal("The chatCompletion operation does not work with the specified model, gpt-5.1-codex.")),
]
NO_ACCESS: list[Case] = [
    # https://github.com/agent0ai/agent-zero/issues/1255
    ("openrouter's settings", 404, refusal("No allowed providers are available for the selected model.", code=404)),
    ("openai", 403, refusal("Project `p` does not have access to model `gpt-5`", code="model_not_found")),
]
NO_SUCH_PATH: list[Case] = [
    ("fastapi", 404, b'{"detail":"Not Found"}'),
    ("go", 404, b"404 page not found"),
    (
        "groq",
        404,
        refusal("Unknown request URL: POST /openai/v1/models/chat/completions", code="unknown_url"),
    ),  # quoted
    ("openai", 404, refusal("Invalid URL (POST /v1/model/chat/completion)", type="invalid_request_error")),
    # https://github.com/iniwap/AIWriteX/issues/26
    (
        "xai",
        404,
        flat(
            code="Some requested entity was not found",
            error="No handler found on route. Please double check your URL and consult https://api.x.ai/docs",
        ),
    ),
    ("azure", 404, refusal("Resource not found", code="404")),
    ("llama-server", 404, refusal("File Not Found", type="not_found_error", code=404)),
    ("apache", 404, b"The requested URL /v1/models/chat/completions was not found on this server."),
    ("express", 404, b"Cannot POST /v1/model/chat/completions, not found"),
    ("kong", 404, b'{"message":"no Route matched with those values"}'),
    ("nothing", 404, b""),
]
ROWS = [
    *((*case, TeacherFault.NO_SUCH_MODEL) for case in NO_SUCH_MODEL),
    *((*case, TeacherFault.NOT_A_CHAT_MODEL) for case in NOT_CHAT),
    *((*case, TeacherFault.NO_ACCESS) for case in NO_ACCESS),
    *((*case, TeacherFault.NO_SUCH_PATH) for case in NO_SUCH_PATH),
    ("a page", 404, PAGE, TeacherFault.HTML),
]


def ids(rows: list[Any]) -> list[str]:
    return [f"{row[0]}, {row[1]}" for row in rows]


@pytest.mark.parametrize(("name", "status", "body", "fault"), ROWS, ids=ids(ROWS))
def test_a_refusal_has_the_fault_that_it_is_in_each_vendors_words(name, status, body, fault) -> None:
    assert fault_of(status, body) is fault


ASKED_ONCE = [row for row in ROWS if row[1] == 400]


@pytest.mark.parametrize(("name", "status", "body", "fault"), ASKED_ONCE, ids=ids(ASKED_ONCE))
def test_a_wrong_model_is_asked_for_once_and_is_no_option_of_the_request(name, status, body, fault) -> None:
    with HostileTeacher(answer(status, body)) as hostile:
        teacher = teacher_at(hostile.base_url)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=30.0)
        teacher.close()
    assert_no_secret(caught.value)
    assert (caught.value.fault, len(hostile.requests), teacher.lessons) == (fault, 1, ())


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'top_p' is not supported with this model.",
        "`temperature` is deprecated for this model.",
        "This model does not support the temperature. The value was not found in the list.",
        "Multiple candidates is not enabled for this model",
        "The model gpt-5.1 does not support chat_template_kwargs",
        "Cannot find field: seed in the model config.",
    ],
)
def test_a_refusal_of_an_option_that_speaks_of_the_model_is_not_about_it(message: str) -> None:
    assert fault_of(400, refusal(message)) is TeacherFault.OTHER_REFUSAL


def test_words_without_end_are_judged_in_no_time() -> None:
    for words in ("model ", "models/", "api key ", "route ", "model: ", "account "):
        assert fault_of(404, refusal(words * (60_000 // len(words)))) in (
            TeacherFault.NO_SUCH_PATH,
            TeacherFault.NO_SUCH_MODEL,
        )
