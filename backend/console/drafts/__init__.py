"""The page of the draft cache: what is kept, what it saved, whether it can be trusted."""
