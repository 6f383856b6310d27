"""The addresses of deployments and of single runs: requests, answers and their description."""
