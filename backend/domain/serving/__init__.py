"""Deployments: which artifact and server answer a request, what crosses to a serving runner, drift from the teacher."""
