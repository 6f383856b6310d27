"""OpenAI's Responses API in its simple form: a text or a list of messages in, one message out, nothing stored."""
