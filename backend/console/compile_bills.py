"""What one compile is billed for, for whoever may read bills."""

from backend.compiles.models import Compile
from backend.console.access import ConsoleRequest
from backend.domain.roles import Permission
from backend.usage.reports import Bill, compile_bill


def bill_of(request: ConsoleRequest, row: Compile) -> Bill | None:
    return compile_bill(row.tenant_id, row.id) if request.visit.may(Permission.BILLS_READ) else None
