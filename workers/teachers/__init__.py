"""Teachers: the protocol that all keep, the clients, what they are asked, and how drafts are verified with them.

The clients are `openai_compatible`, `vllm` and `replay`; `grammar` is a server of ours behind the first.
`workers.step.teacher_session` makes the one that a spec names. `prompts` are the questions and how their answers are
read; `verifiers` and `judges` hold the dialogues about drafts.
"""
