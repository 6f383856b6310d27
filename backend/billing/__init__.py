"""Billing: plans and their subscriptions, periods and invoices made from the ledger, and Stripe's copy of them."""
