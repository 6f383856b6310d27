"""The signed file and what stands behind it: building a `.kolm`, verifying one, receipts, keyrings."""
