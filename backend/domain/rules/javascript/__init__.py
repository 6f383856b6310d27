"""A rule list exported as one JavaScript function without dependencies."""
