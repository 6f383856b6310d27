"""The addresses of compiles: requests and answers, and the stream of events. The work is done in the modules below."""
