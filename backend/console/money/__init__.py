"""The pages of money: usage, bills, invoices, the ledger, budgets, plans."""
