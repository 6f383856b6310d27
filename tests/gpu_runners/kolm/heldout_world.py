"""As a process of the deployment: a tenant with a label and a json compile that missed their gates, and one that waits,
printed as one line of JSON."""

import json
import os

HOSTILE = "AB-1 [bold]\x1b[31m red\u202e XY-2"


def make() -> dict[str, str]:
    from tests.compile_factories import make_compile, public_id
    from tests.factories import make_api_key, make_tenant
    from tests.heldout_factories import json_compile, label_compile

    tenant = make_tenant("answers")
    labels = label_compile(
        tenant, *[("refund", "other")] * 25, ("other", "?"), ("other", "other"), inputs=[HOSTILE] * 27
    )
    gold = {"kind": "order", "lines": [{"sku": "AB-1"}]}
    answer = {"kind": "return", "lines": [{"sku": "XY-2"}]}
    fields = [{"path": "/lines/0/sku", "start": 22, "end": 26, "confidence_ppm": 987_000}]
    values = json_compile(
        tenant,
        *[(gold, answer)] * 5,
        ({"kind": "order"}, "{"),
        inputs=[HOSTILE] * 6,
        fields=[fields] * 5 + [[{"path": "/kind", "start": None, "end": None}]],
    )
    rows = {"label": labels, "json": values, "waiting": make_compile(tenant)}
    return {name: public_id(row) for name, row in rows.items()} | {"key": make_api_key(tenant)}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    import django

    django.setup()
    print(json.dumps(make()), flush=True)
