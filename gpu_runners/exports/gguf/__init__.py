"""llama.cpp's files: a causal base, and a LoRA adapter over it, written by the `gguf` package."""
