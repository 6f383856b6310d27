"""As a process of the deployment: a tenant with a key and two generative artifacts of the same base and task, printed
as one line of JSON."""

import json
import os


def make() -> dict[str, str]:
    from tests.backend.serving.worlds import make_world
    from tests.compile_factories import public_id

    world = make_world()
    return {"key": world.secret, "first": public_id(world.artifact), "second": public_id(world.another())}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    import django

    django.setup()
    print(json.dumps(make()), flush=True)
