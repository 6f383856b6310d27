"""Request bodies: who sends them, how much may come and how slowly, and JSON read without a view's help."""
