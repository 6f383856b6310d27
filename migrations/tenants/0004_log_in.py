"""The tables of log-in (sessions, e-mail addresses, second factors) are people's, not tenants': the web process reads
and writes them, and no tenant's content is in them."""

from django.db import migrations

from backend.tenants.isolation import shared_table_sql

TABLES = (
    "django_session",
    "account_emailaddress",
    "account_emailconfirmation",
    "socialaccount_socialaccount",
    "socialaccount_socialapp",
    "socialaccount_socialtoken",
    "mfa_authenticator",
    "usersessions_usersession",
)


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0003_no_temporary_objects"),
        ("sessions", "0001_initial"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("usersessions", "0001_initial"),
    ]

    operations = [migrations.RunSQL(*shared_table_sql(table)) for table in TABLES]
