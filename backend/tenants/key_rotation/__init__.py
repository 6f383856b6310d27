"""The rotation of the installation's keys: sealed values are sealed again, tenant tokens are signed by another."""
