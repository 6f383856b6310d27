"""The pages of deployments: names under which artifacts answer, and what they did in the last day."""
