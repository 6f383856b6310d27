"""The names of skus on bills, on invoices and on the price page, in words."""

_TITLES = {
    "embedding.token": "Embedding, tokens",
    "serving.prompt_token": "Hosted answers, tokens read",
    "serving.cached_token": "Hosted answers, tokens read from the cache",
    "serving.completion_token": "Hosted answers, tokens written",
    "runner.second": "Runner, seconds",
    "runner.millisecond": "Answers outside of deployments, milliseconds",
    "runner.encoder_job": "Encoder, jobs",
    "runner.encoder_train_token": "Encoder, tokens trained on",
    "runner.encoder_read_token": "Encoder, tokens evaluated",
    "runner.causal_job": "Causal base, jobs",
    "runner.causal_train_token": "Causal base, tokens trained on",
    "runner.causal_read_token": "Causal base, tokens read",
    "runner.causal_write_token": "Causal base, tokens written",
    "runner.causal_draft_token": "Recipe pack, tokens measured",
    "runner.select_job": "Selection, jobs",
    "runner.select_row": "Selection, rows",
}
_TEACHER = {
    "input": "tokens read",
    "cached_input": "tokens read from the vendor's cache",
    "cache_write": "tokens written to the vendor's cache",
    "output": "tokens written",
}


def sku_title(sku: str) -> str:
    """
    >>> sku_title("runner.select_row"), sku_title("teacher.kolm-grammar-1.output_token"), sku_title("storage.gb")
    ('Selection, rows', 'Teacher kolm-grammar-1, tokens written', 'storage.gb')
    """
    if sku in _TITLES:
        return _TITLES[sku]
    if sku.startswith("teacher.") and sku.endswith("_token"):
        model, _, kind = sku.removeprefix("teacher.").removesuffix("_token").rpartition(".")
        if kind in _TEACHER:
            return f"Teacher {model}, {_TEACHER[kind]}"
    return sku
