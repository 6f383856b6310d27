"""A causal base of a few megabytes that the project trains itself, for machines without a model hub: tests, CI, the
demo. It answers by copying from its input into JSON, and knows nothing of the world."""
