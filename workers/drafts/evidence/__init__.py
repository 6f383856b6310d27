"""Evidence of bad drafts, by audits and label votes, and suspension beyond the bound."""
