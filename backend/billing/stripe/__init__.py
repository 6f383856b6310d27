"""Stripe as our own values: subscriptions, invoices, meters. Only `api` imports its SDK. The events that Stripe sends
are taken in by `backend.billing.stripe_events`, which acts on our tables."""
