"""The dialects of vendors and servers, as stored copies of their documentation and reported refusals tell; each with
the vendor's own page and the day on which the row was written. No vendor was asked; of the servers, those whose row
says so (`asked`). Of Together, Vertex, Bedrock and LM Studio no list of parameters was found: their rows are
assumptions. A vendor that is not here is assumed to speak OpenAI's whole protocol, and its refusals teach the rest
(`Lesson`).

Where a row and an endpoint disagree the endpoint is right: what it refuses is learnt for the rows of this table too. So
a row lists what saves a refusal, and above all what an endpoint ignores without a word, which no refusal can teach.
"""

from urllib.parse import urlsplit

from backend.domain.dialects.batches import GROQ_BATCHES, OPENAI_BATCHES
from backend.domain.dialects.dialect import LOGPROBS, SAMPLING, Dialect, Option, ResponseFormat

WRITTEN = "2026-11-25"
PLAIN = frozenset({Option.SYSTEM_ROLE, Option.RESPONSE_FORMAT})
EFFORT = frozenset({Option.EFFORT})
CACHE_KEY = frozenset({Option.CACHE_KEY})
TEMPERATURES = frozenset({Option.TEMPERATURE, Option.TOP_P})
TOP_K = frozenset({Option.TOP_K})
ALL_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
LOW_TO_HIGH = ("low", "medium", "high")

UNKNOWN = Dialect(
    name="openai-compatible",
    source="assumed: OpenAI's protocol; what the endpoint refuses is learnt",
    written_on=WRITTEN,
    takes=SAMPLING | LOGPROBS | PLAIN | EFFORT | TOP_K,
    max_top_logprobs=1024,
)
GRAMMAR = Dialect(
    name="grammar",
    source="kolm's own demonstration teacher",
    written_on=WRITTEN,
    takes=SAMPLING | LOGPROBS | {Option.SYSTEM_ROLE} | TOP_K,
    max_top_logprobs=1024,
    response_format=ResponseFormat.FREE,
)

# The first that fits counts. Model names are compared in lower case.
VENDORS: tuple[Dialect, ...] = (
    Dialect(
        name="openai-reasoning",
        source="https://platform.openai.com/docs/api-reference/chat/create",
        written_on=WRITTEN,
        hosts=("api.openai.com",),
        models=r"^(?:ft:)?(?:o\d|gpt-(?:5|6)(?!.*chat))",
        takes=PLAIN | EFFORT | CACHE_KEY | {Option.N, Option.SEED},
        token_limit="max_completion_tokens",
        efforts=ALL_EFFORTS,
        thinks=True,
        batch=OPENAI_BATCHES,
    ),
    Dialect(
        name="openai",
        source="https://platform.openai.com/docs/api-reference/chat/create",
        written_on=WRITTEN,
        hosts=("api.openai.com",),
        takes=SAMPLING | LOGPROBS | PLAIN | CACHE_KEY,
        token_limit="max_completion_tokens",
        batch=OPENAI_BATCHES,
    ),
    # a deployment's name says nothing of its model: whether it thinks, or takes a temperature, is learnt
    Dialect(
        name="azure-openai",
        source="https://learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning",
        written_on=WRITTEN,
        hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
        takes=SAMPLING | LOGPROBS | PLAIN | EFFORT,
        token_limit="max_completion_tokens",
        efforts=ALL_EFFORTS,
    ),
    # Ignores response_format, seed, logprobs and reasoning_effort without a word. Its page has tools, their parameters
    # and tool_calls as fully supported (stored copies of it, read on 2026-11-26), and does not name tool_choice.
    # Models that refuse a forced tool (https://github.com/can1357/oh-my-pi/issues/12939) teach it.
    Dialect(
        name="anthropic",
        source="https://docs.anthropic.com/en/api/openai-sdk",
        written_on=WRITTEN,
        hosts=("api.anthropic.com",),
        takes=TEMPERATURES | PLAIN,
        max_n=1,
        max_temperature=1.0,
        response_format=ResponseFormat.TOOL,
    ),
    Dialect(
        name="gemini",
        source="https://ai.google.dev/gemini-api/docs/openai",
        written_on=WRITTEN,
        hosts=("generativelanguage.googleapis.com",),
        takes=TEMPERATURES | PLAIN | EFFORT,
        max_n=1,
        efforts=("none", "minimal", *LOW_TO_HIGH),
        thinks=True,
    ),
    Dialect(
        name="vertex",
        source="https://docs.cloud.google.com/vertex-ai/generative-ai/docs/migrate/openai/overview",
        written_on=WRITTEN,
        hosts=("googleapis.com",),
        path="/endpoints/openapi",
        takes=TEMPERATURES | PLAIN | EFFORT,
        max_n=1,
        efforts=("none", "minimal", *LOW_TO_HIGH),
        thinks=True,
    ),
    Dialect(
        name="mistral-reasoning",
        source="https://docs.mistral.ai/capabilities/reasoning",
        written_on=WRITTEN,
        hosts=("api.mistral.ai",),
        models=r"^magistral",
        takes=SAMPLING | PLAIN | CACHE_KEY,
        seed="random_seed",
        max_temperature=1.5,
        thinks=True,
    ),
    Dialect(
        name="mistral",
        source="https://docs.mistral.ai/api",
        written_on=WRITTEN,
        hosts=("api.mistral.ai",),
        takes=SAMPLING | PLAIN | EFFORT | CACHE_KEY,
        seed="random_seed",
        max_temperature=1.5,
        efforts=("none", "high"),
    ),
    Dialect(
        name="groq-reasoning",
        source="https://console.groq.com/docs/reasoning",
        written_on=WRITTEN,
        hosts=("api.groq.com",),
        models=r"gpt-oss|qwen-?3|deepseek-r1",
        takes=TEMPERATURES | PLAIN | EFFORT | {Option.SEED},
        token_limit="max_completion_tokens",
        max_n=1,
        efforts=LOW_TO_HIGH,
        thinks=True,
        batch=GROQ_BATCHES,
    ),
    Dialect(
        name="groq",
        source="https://console.groq.com/docs/openai",
        written_on=WRITTEN,
        hosts=("api.groq.com",),
        takes=TEMPERATURES | PLAIN | {Option.SEED},
        token_limit="max_completion_tokens",
        max_n=1,
        batch=GROQ_BATCHES,
    ),
    # Thinks at "high" where nothing is said, and takes a temperature then without a word and without effect. Has no
    # json_schema; while it thinks it refuses a forced tool (https://github.com/deepseek-ai/DeepSeek-V3/issues/1376).
    Dialect(
        name="deepseek",
        source="https://api-docs.deepseek.com/guides/thinking_mode",
        written_on=WRITTEN,
        hosts=("api.deepseek.com",),
        takes=TEMPERATURES | PLAIN | EFFORT,
        max_n=1,
        response_format=ResponseFormat.OBJECT,
        efforts=("low", "high", "max"),
        off=(("thinking", "type"), "disabled"),
        thinks=True,
    ),
    Dialect(
        name="together",
        source="https://docs.together.ai/reference/chat-completions-1",
        written_on=WRITTEN,
        hosts=("api.together.xyz", "api.together.ai"),
        takes=SAMPLING | PLAIN | EFFORT | TOP_K,
        efforts=LOW_TO_HIGH,
    ),
    Dialect(
        name="fireworks",
        source="https://docs.fireworks.ai/api-reference/post-chatcompletions",
        written_on=WRITTEN,
        hosts=("api.fireworks.ai",),
        takes=SAMPLING | LOGPROBS | PLAIN | EFFORT | CACHE_KEY | TOP_K,
        max_top_logprobs=5,
        efforts=("none", *LOW_TO_HIGH),
    ),
    Dialect(
        name="openrouter-breakpoints",
        source="https://openrouter.ai/docs/features/prompt-caching",
        written_on=WRITTEN,
        hosts=("openrouter.ai",),
        models=r"^(?:anthropic|google)/",
        takes=TEMPERATURES | PLAIN | EFFORT | {Option.SEED},
        max_n=1,
        effort=("reasoning", "effort"),
        efforts=ALL_EFFORTS,
        has_breakpoints=True,
    ),
    # drops what the provider behind it does not take
    Dialect(
        name="openrouter",
        source="https://openrouter.ai/docs/api/reference/parameters",
        written_on=WRITTEN,
        hosts=("openrouter.ai",),
        takes=TEMPERATURES | LOGPROBS | PLAIN | EFFORT | TOP_K | {Option.SEED},
        max_n=1,
        effort=("reasoning", "effort"),
        efforts=ALL_EFFORTS,
    ),
    Dialect(
        name="bedrock",
        source="https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html",
        written_on=WRITTEN,
        hosts=("amazonaws.com", "api.aws"),
        path="/v1",
        takes=TEMPERATURES | PLAIN | EFFORT,
        token_limit="max_completion_tokens",
        max_n=1,
        efforts=LOW_TO_HIGH,
    ),
    Dialect(
        name="xai",
        source="https://docs.x.ai/docs/api-reference",
        written_on=WRITTEN,
        hosts=("api.x.ai",),
        takes=SAMPLING | PLAIN | EFFORT,
        token_limit="max_completion_tokens",
        efforts=("none", *LOW_TO_HIGH),
        thinks=True,
    ),
    Dialect(
        name="cerebras",
        source="https://inference-docs.cerebras.ai/api-reference/chat-completions",
        written_on=WRITTEN,
        hosts=("api.cerebras.ai",),
        takes=TEMPERATURES | LOGPROBS | PLAIN | EFFORT | {Option.SEED},
        token_limit="max_completion_tokens",
        max_n=1,
        max_temperature=1.5,
        efforts=LOW_TO_HIGH,
    ),
)

# Servers that people run themselves, at any address: a spec names them (`teacher.dialect`), or their refusals teach
# them.
SERVERS: tuple[Dialect, ...] = (
    Dialect(
        name="vllm",
        source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        written_on=WRITTEN,
        asked="vLLM 0.32.0 on 2026-11-26",
        takes=SAMPLING | LOGPROBS | PLAIN | EFFORT | TOP_K,
        efforts=ALL_EFFORTS,
        off=(("chat_template_kwargs", "enable_thinking"), False),
    ),
    Dialect(
        name="sglang",
        source="https://docs.sglang.ai/basic_usage/openai_api_completions.html",
        written_on=WRITTEN,
        takes=SAMPLING | LOGPROBS | PLAIN | EFFORT | TOP_K,
        efforts=ALL_EFFORTS,
        off=(("chat_template_kwargs", "enable_thinking"), False),
    ),
    # gives as many choices as it has slots, and counts the tokens of the first alone
    Dialect(
        name="llama-server",
        source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        written_on=WRITTEN,
        asked="llama-server b1-0c1e570 on 2026-11-26",
        takes=TEMPERATURES | LOGPROBS | PLAIN | EFFORT | TOP_K | {Option.SEED},
        max_n=1,
        efforts=ALL_EFFORTS,
        off=(("chat_template_kwargs", "enable_thinking"), False),
    ),
    # ignores n and max_completion_tokens without a word
    Dialect(
        name="ollama",
        source="https://docs.ollama.com/api/openai-compatibility",
        written_on=WRITTEN,
        takes=TEMPERATURES | LOGPROBS | PLAIN | EFFORT | {Option.SEED},
        max_n=1,
        efforts=("none", *LOW_TO_HIGH),
    ),
    Dialect(
        name="lm-studio",
        source="https://lmstudio.ai/docs/developer/openai-compat/chat-completions",
        written_on=WRITTEN,
        takes=TEMPERATURES | PLAIN | TOP_K | {Option.SEED},
        max_n=1,
    ),
    # ignores n, logprobs, response_format, reasoning_effort and max_completion_tokens without a word, and a temperature
    # where the model's own settings draw no tokens; refuses what OpenAI has no name for
    Dialect(
        name="transformers",
        source="https://huggingface.co/docs/transformers/main/serving",
        written_on="2026-11-26",
        asked="transformers 5.19.0 on 2026-11-26",
        takes=TEMPERATURES | {Option.SEED, Option.SYSTEM_ROLE, Option.DO_SAMPLE},
        max_n=1,
        response_format=ResponseFormat.FREE,
    ),
)
BY_NAME = {dialect.name: dialect for dialect in (UNKNOWN, *VENDORS, *SERVERS)}


def dialect_for(base_url: str | None, model: str, *, name: str | None = None) -> Dialect:
    """The dialect of a model at an address; `name` is one that its owner names and goes first.

    >>> dialect_for("https://api.openai.com/v1", "gpt-5-mini").token_limit
    'max_completion_tokens'
    >>> dialect_for("https://llm.example.com/v1", "gpt-5-mini").name
    'openai-compatible'
    """
    if name is not None:
        return BY_NAME[name]
    try:
        address = urlsplit(base_url or "")
        host = (address.hostname or "").lower()
    except ValueError:  # no address at all, which the spec's rules say in words
        return UNKNOWN
    return next((dialect for dialect in VENDORS if dialect.fits(host, address.path, model)), UNKNOWN)
