"""The page at `/` for who is not logged in."""
