"""Training LoRA layers of a causal language model, for tasks whose answer is JSON or text."""
