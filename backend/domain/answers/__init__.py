"""Answers as values: labels and votes, JSON values and their schemas, texts and how alike they are, candidates."""
