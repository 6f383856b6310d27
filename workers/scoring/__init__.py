"""The spec's own checks and verifiers over texts and answers. No teacher is asked here."""
