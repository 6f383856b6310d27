"""Answers to the web while somebody waits: the playground's teacher, the shadow's comparison, the preview of drafts. No
compile is run here."""
