"""Prices, plans, the double-entry ledger and invoices. Amounts are whole micro-USD."""
