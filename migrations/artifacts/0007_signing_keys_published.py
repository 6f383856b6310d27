"""Every process reads the documents of signing keys, the owner alone writes them: who gets SQL into a request must not
become somebody whom all keyrings trust."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("artifacts", "0006_signing_keys")]

    operations = [
        migrations.RunSQL(
            "GRANT SELECT ON artifacts_signingkey TO kolm_app;", "REVOKE ALL ON artifacts_signingkey FROM kolm_app;"
        )
    ]
