"""What the endpoints that speak OpenAI's chat completions take and refuse, by vendor and by
server, and what was learnt of one."""
