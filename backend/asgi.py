"""The web process's entry: `granian --interface asgi backend.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
_django = get_asgi_application()  # sets Django up: settings can be read from here on

from backend.rest.body_limits import limit_bodies  # noqa: E402

application = limit_bodies(_django)
