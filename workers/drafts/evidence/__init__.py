"""What is evidence of bad drafts: audits, label votes, and what follows beyond the bound."""
