"""Training one adapter over a frozen base. Nothing here knows the network: bytes and values in,
bytes and values out."""
