"""Epochs of the registry: what enough tenants' answers have in common, signed. Only structure leaves a tenant."""
