"""The form of our authentication in the OpenAPI document; importing this module is what registers it."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "backend.tenants.api_keys.authentication.ApiKeyAuthentication"
    name = "api_key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "sk_live_..."}
