"""The page of the recipe registry."""
