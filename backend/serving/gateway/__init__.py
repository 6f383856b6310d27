"""The gateway: an OpenAI request is admitted, sent to a server, streamed back, and compared with the teacher."""
