"""The engines that generate tokens behind one protocol: ours on transformers, which runs everywhere, and vLLM where it
is installed."""
