"""Token generation: one protocol, engines behind it (our batched transformers engine everywhere, vLLM where installed)."""
