"""The bodies of requests, read strictly: a parameter that this server does not honour is an error, never ignored."""
