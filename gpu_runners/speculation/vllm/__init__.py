"""Recipe packs inside vLLM, on both sides of its process border.

our process      `drafting` names the proposer, sends each request's pack along and reads what its drafts did
the border       `wire`: JSON values in vLLM's start, with each request and behind each answer
vLLM's process   `plugin` is the proposer that vLLM calls; `sequences` holds the requests that vLLM holds, `guard`
                 keeps an error of ours from ending the engine, `repairs` mends what vLLM lacks beside drafts
"""
