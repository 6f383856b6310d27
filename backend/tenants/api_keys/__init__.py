"""A tenant's API keys: their form, issuing and revoking them, and how a request is authenticated by one."""
