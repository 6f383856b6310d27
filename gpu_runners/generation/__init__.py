"""Token generation: one protocol, and engines behind it: ours on transformers everywhere, vLLM where installed."""
