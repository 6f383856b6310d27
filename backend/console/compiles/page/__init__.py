"""The figures and sentences of a compile's page that no other page shows."""
