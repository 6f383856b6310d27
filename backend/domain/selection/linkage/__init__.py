"""Agglomerative clustering of unit rows on cosine distance, exact and deterministic, and what is read off its tree."""
