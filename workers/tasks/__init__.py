"""Celery tasks: ids in, one function called. A task that is lost or doubled changes nothing."""
