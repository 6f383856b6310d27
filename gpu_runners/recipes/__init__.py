"""Drafted tokens on a runner: where they come from (pack, schema, prompt, a small model), how many pay, and the hooks
by which our engine, vLLM, transformers and llama.cpp take them."""
