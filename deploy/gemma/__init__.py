"""A real language model for benches and tests: Google's Gemma 3 270M from the package index, made into a base."""
