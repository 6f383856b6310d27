"""The web process's entry: `granian --interface asgi backend.asgi:application`."""

import gc
import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
gc.disable()  # nothing of what is imported is garbage, and looking for some costs a quarter of the start
_django = get_asgi_application()  # sets Django up: settings can be read from here on

from backend.console.body_senders import sender_by_session  # noqa: E402
from backend.console.errors import body_refused_page  # noqa: E402
from backend.domain.log_text import guard_logs  # noqa: E402
from backend.rest.bodies.body_limits import STRANGERS_BYTES, limit_bodies  # noqa: E402
from backend.rest.bodies.body_senders import Area, SenderBook  # noqa: E402
from backend.rest.log_lines import log_what_escapes  # noqa: E402
from backend.runner_jobs.body_senders import sender_by_token  # noqa: E402
from backend.runner_jobs.own_absence import watch  # noqa: E402
from backend.tenants.api_keys.body_senders import sender_by_key  # noqa: E402

_AREAS = (
    # Stripe signs what it sends: that is looked at when the body is there
    Area(prefix="/v1/stripe/", credential="", find=lambda path, _: None, strangers_bytes=STRANGERS_BYTES),
    Area(prefix="/v1/", credential="authorization", find=sender_by_key),
    Area(prefix="/internal/", credential="authorization", find=sender_by_token, is_one_for_all_paths=False),
    Area(
        prefix="/app/",
        credential="cookie",
        find=sender_by_session,
        strangers_bytes=STRANGERS_BYTES,
        page=body_refused_page,
    ),
)

guard_logs()
application = log_what_escapes(limit_bodies(_django, SenderBook(_AREAS)))
watch()
gc.enable()
gc.freeze()  # what is loaded by now is not looked through again
