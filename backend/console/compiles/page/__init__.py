"""The page of one compile: its head, and the tabs below it."""
