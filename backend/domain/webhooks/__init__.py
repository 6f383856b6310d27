"""Webhooks: the catalogue of events, signatures, and when a delivery is tried again."""
