"""The way in which a text encoder wants its texts: pooling, prefix and length, by its own files."""
