"""Customers' regular expressions, read and run in linear time."""
