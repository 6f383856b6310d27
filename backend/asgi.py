"""The web process's entry: `granian --interface asgi backend.asgi:application`."""

import gc
import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
gc.disable()  # nothing of what is imported is garbage, and looking for some costs a quarter of the start
_django = get_asgi_application()  # sets Django up: settings can be read from here on

from backend.rest.body_limits import limit_bodies  # noqa: E402
from backend.runner_jobs.own_absence import watch  # noqa: E402

application = limit_bodies(_django)
watch()
gc.enable()
gc.freeze()  # what is loaded by now is not looked through again
