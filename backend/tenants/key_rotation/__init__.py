"""The rotation of the deployment's keys: sealed values come under the new one, tenant tokens are signed by another."""
