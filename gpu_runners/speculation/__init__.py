"""Drafted tokens: where they come from (pack, schema, prompt, a small model), how many pay, and the hooks by which
engines take them: ours, vLLM's, transformers' and llama.cpp's."""
