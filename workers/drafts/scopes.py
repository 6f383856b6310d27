"""The name under which drafts are kept and looked for: family, teacher with its revision and sampling policy, embedder.
What differs in any of them is another distribution, or another space, and never meets."""

from uuid import UUID

from backend.drafts.cache import DraftScope
from backend.drafts.models import Scope
from workers.teachers.protocol import TeacherIdentity

UNKNOWN = "unknown"  # a teacher that tells no revision, and a spec that names none


def draft_scope(
    identity: TeacherIdentity, *, family: str, embedder: str, temperature: float, revision: str = ""
) -> DraftScope:
    """`revision` is what the teacher said it is; what the spec declares goes before it."""
    known = identity.revision or revision or UNKNOWN
    return DraftScope(family=family, teacher=f"{identity.name}@{known}{policy(temperature)}", embedder=embedder)


def label_scope(identity: TeacherIdentity, *, family: str, temperature: float, revision: str) -> DraftScope | None:
    """The scope in which label answers are kept; None where nobody says which revision gave them: then an old answer
    may be another model's."""
    known = identity.revision or revision
    if not known:
        return None
    teacher = f"{identity.name}@{known}|labels{policy(temperature)}"
    return DraftScope(family=family, teacher=teacher, embedder="")


def policy(temperature: float) -> str:
    """The sampling policy as part of the teacher's name: everything else of it is the same in every compile."""
    return f"|top_p=1|temperature={temperature:.2f}"


def find_scopes(tenant_id: UUID, wanted: DraftScope, identity: TeacherIdentity) -> Scope | None:
    """The scope to look in: exactly the wanted one where the revision is known beforehand, else the newest of the same
    teacher and policy (its first answer will tell whether it still is that revision)."""
    rows = Scope.objects.filter(tenant_id=tenant_id, family=wanted.family, embedder=wanted.embedder)
    if identity.revision:
        return rows.filter(teacher=wanted.teacher).first()
    tail = wanted.teacher[wanted.teacher.index("|") :]
    return rows.filter(teacher__startswith=f"{identity.name}@", teacher__endswith=tail).order_by("-id").first()


def revision_of(scope: Scope) -> str:
    """The revision in a scope's name, "" where nobody told one."""
    known = scope.teacher.split("|")[0].rpartition("@")[2]
    return "" if known == UNKNOWN else known
