"""The endpoints that speak OpenAI's chat completions: what each vendor and server takes and refuses, and what was
learnt of one."""
