"""The client of every teacher that speaks OpenAI's chat and text completions, and the readers of its answers, which are
hostile input."""
