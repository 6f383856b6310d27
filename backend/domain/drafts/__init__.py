"""The draft cache's decisions: which drafts are worth offering, how much of one is kept, how far a judge is trusted."""
