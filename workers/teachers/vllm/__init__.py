"""vLLM as a teacher: what it answers beyond the OpenAI forms, and the proposer that its engine loads to verify drafts
while it writes."""
