"""The drafts of compiles: what they saved beside what their teacher was paid, and what it kept and refused."""
