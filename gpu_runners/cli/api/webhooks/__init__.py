"""`kolm webhooks`: endpoints and deliveries, and listening on this machine."""
