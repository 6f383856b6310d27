"""A span student: its tensors, its reading of texts, its forward pass and what its logits say. Needs no torch."""
