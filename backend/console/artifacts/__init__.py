"""The pages of artifacts: what was published, its versions, whether it verifies."""
