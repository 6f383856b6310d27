"""Json answers as extraction: how each value of an answer comes about from its input, learned from pairs."""
