"""OpenAI's interface over any engine: requests read strictly, answers streamed."""
