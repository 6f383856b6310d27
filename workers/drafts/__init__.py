"""Drafts of earlier compiles, offered before the teacher writes afresh: looked up, planned, verified in a dialogue,
admitted as candidates, audited, and kept for the next compile; and what each slice saved."""
