"""The pages of compiles: the list, one compile while it runs and after, its candidates, two side by side, and the
editor of specs."""
