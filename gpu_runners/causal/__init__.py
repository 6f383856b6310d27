"""What training, evaluation and serving of causal models share: the base, its chat, its adapters, its device."""
