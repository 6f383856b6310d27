"""The words of vendors for a model, a key, an account or a path that is wrong, as they were reported at the page named
beside them, or as public repositories quote them ("quoted"), or from memory."""

import json
from typing import Any

from tests.workers.teachers.openai_compatible.test_endpoint_faults import PAGE, error

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
    ("hugging face", 400, refusal("The requested model 'a/b-2.5' is not supported by any provider you have enabled.")),
    ("perplexity", 400, refusal("Invalid model 'x'. Permitted models can be found in the documentation")),
    ("cohere", 404, flat(message="model 'command-9.1' not found, make sure the correct model ID was used")),
    # no vendor's, but said so by some server
    *(
        ("a gateway", status, refusal(words))
        for status in (400, 404)
        for words in (
            "Couldn't find model a-1.5",
            "Unable to find the model a",
            "There is no model named a-1.5 here",
            "a-1.5 is not a supported model",
            "Model a-1.5 is not loaded",
            "The model you requested doesn't exist",
            "The model a-1.5 isn't available",
        )
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
    # https://github.com/google-gemini/gemini-cli/issues/1343
    (
        "google, an API that is off",
        403,
        refusal(
            "Generative Language API has not been used in project 4 before or it is disabled. Enable it by visiting "
            "https://console.developers.google.com/apis/api/generativelanguage.googleapis.com/overview?project=4",
            status="PERMISSION_DENIED",
            details=[{"reason": "SERVICE_DISABLED", "domain": "googleapis.com"}],
        ),
    ),
    # from memory
    (
        "litellm",
        401,
        refusal(
            "key not allowed to access model. This key can only access models=['a']", type="key_model_access_denied"
        ),
    ),
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
WRONG_KEY: list[Case] = [
    # https://github.com/ai4s-research/open-science/issues/53
    ("bedrock", 403, flat(Message="Authentication failed: Please make sure your API Key is valid.")),
    ("bedrock, expired", 403, flat(Message="Bearer Token has expired")),  # quoted
    ("bedrock, signed", 403, flat(message="The security token included in the request is invalid.")),  # from memory
    ("fireworks", 403, refusal("The API key you provided is invalid.", code="UNAUTHORIZED", type="error")),  # quoted
    ("fireworks, 401", 401, refusal("The API key you provided is invalid.", code="UNAUTHORIZED", type="error")),
    # from memory
    ("xai", 400, flat(code="Client specified an invalid argument", error="Incorrect API key provided: xa***Z.")),
    ("openrouter", 401, refusal("User not found.", code=401)),
    ("a gateway", 403, flat(detail="Not authenticated")),
    ("a gateway, credentials", 403, flat(detail="Invalid credentials")),
    ("a gateway, disabled", 403, refusal("This API key has been deactivated")),
    # https://ai.google.dev/gemini-api/docs/troubleshooting
    ("gemini", 400, b"[" + refusal("API key not valid. Please pass a valid API key.", status="x") + b"]"),
    # from memory
    ("gemini, expired", 400, refusal("API key expired. Please renew the API key.", status="INVALID_ARGUMENT")),
    ("gemini, leaked", 403, refusal("Your API key was reported as leaked. Please use another API key.")),
    ("gemini without one", 403, refusal("Method doesn't allow unregistered callers. Please use API Key or other form")),
    # https://github.com/Azure-Samples/chat-with-your-data-solution-accelerator/issues/63
    (
        "azure",
        401,
        refusal(
            "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for "
            "an active subscription and use a correct regional API endpoint for your resource.",
            code="401",
        ),
    ),
]
NO_QUOTA: list[Case] = [
    # https://github.com/griptape-ai/griptape-nodes-engine/issues/1079
    (
        "xai, new",
        403,
        flat(
            code="The caller does not have permission to execute the specified operation",
            error="Your newly created teams doesn't have any credits yet. You can purchase credits on "
            "https://console.x.ai/team/c8.",
        ),
    ),
    # https://github.com/continuedev/continue/issues/12670
    ("xai, newer", 403, flat(error="Your newly created team doesn't have any credits or licenses yet.")),
    # https://github.com/warpdotdev/warp/issues/14863, https://github.com/continuedev/continue/issues/10373
    *(
        (
            "xai, used up",
            status,
            flat(error="Your team t-1 has either used all available credits or reached its monthly spending limit."),
        )
        for status in (403, 429)
    ),
    # https://github.com/Wei-Shaw/sub2api/issues/4069
    ("xai, a subscription", 403, flat(error="You have run out of credits or need a Grok subscription.")),
    # https://github.com/pollinations/pollinations/issues/12136
    (
        "fireworks",
        412,
        refusal(
            "Account a-1 is suspended, possibly due to reaching the monthly spending limit or failure to pay past "
            "invoices. Please go to https://fireworks.ai/account/billing for more information.",
            code="PRECONDITION_FAILED",
        ),
    ),
    # https://docs.anthropic.com/en/api/errors
    ("anthropic", 400, refusal("Your credit balance is too low to access the Anthropic API.", type="x")),
    ("a page of 402", 402, PAGE),
    ("nothing", 402, b""),
    ("a wrong key's words at 402", 402, refusal("invalid api key")),
    # from memory
    (
        "openrouter, a key's limit",
        403,
        refusal("Key limit exceeded (total limit). Manage it using https://x", code=403),
    ),
    ("gemini, prepaid", 429, refusal("Your prepayment credits are depleted. Please go to AI Studio", status="x")),
    ("alibaba's free tier", 403, flat(code="x", message="The free tier of the model has been exhausted.")),
    ("a gateway, in short", 400, refusal("Not enough credits")),
    ("a gateway, a balance", 403, refusal("Your balance is insufficient.")),
    # quoted
    (
        "moonshot",
        429,
        refusal("Your account is suspended, please check your plan", type="exceeded_current_quota_error"),
    ),
    # https://github.com/continuedev/continue/issues/9570
    (
        "gemini's limit of none",
        429,
        refusal(
            "You exceeded your current quota. * Quota exceeded for metric: generativelanguage.googleapis.com/free_tier"
            "_requests, limit: 0, model: gemini-3-pro Please retry in 45.578569677s."
        ),
    ),
    # from memory
    ("google without billing", 403, refusal("This API method requires billing to be enabled.", status="x")),
    ("litellm", 400, refusal("Budget has been exceeded! Current cost: 1.2, Max budget: 1.0", type="budget_exceeded")),
    ("a gateway", 401, refusal("Insufficient balance. Manage your billing here: https://x", type="CreditsError")),
    (
        "alibaba",
        400,
        flat(code="Arrearage", message="Access denied, please make sure your account is in good standing"),
    ),
    ("zhipu", 429, refusal("余额不足或无可用资源包,请充值。", code="1113")),
]
MAY_PASS: list[Case] = [
    # https://github.com/continuedev/continue/issues/9570, with another limit
    (
        "gemini's limit by the minute",
        429,
        refusal(
            "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: "
            "generativelanguage.googleapis.com/free_tier_requests, limit: 10, model: gemini-3-pro Please retry in 45s."
        ),
    ),
    (
        "azure's rate",
        429,
        refusal("You have exceeded the token rate limit for your current AIServices S0 pricing tier."),
    ),
    ("a condition that failed", 412, refusal("The deployment is not ready.", code="PRECONDITION_FAILED")),
    ("a page of 412", 412, PAGE),
]
