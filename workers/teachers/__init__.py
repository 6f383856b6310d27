"""Teachers: the protocol that all keep, the clients, what they are asked, and how drafts are verified with them.

`factory` makes the one that a spec names: `openai_compatible`, `vllm`, `replay`, or `grammar`, a server of ours behind
the first. `prompts` are the questions and how their answers are read; `verifiers` and `judges` hold the dialogues about
drafts.
"""
