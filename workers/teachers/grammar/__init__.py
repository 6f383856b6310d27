"""The built-in teacher: a grammar behind an OpenAI-compatible server, whose probabilities are exact. It stands where a
language model would, for demonstrations without an account and for tests that need the truth."""
