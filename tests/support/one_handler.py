"""One handler for all tenants, as in a deployment whose tenants have no handlers of their own."""

from dataclasses import dataclass

from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.ports import Handler
from shared.pipeline.tenant_handlers import TenantCode


@dataclass(frozen=True, slots=True)
class OneHandler:
    """The same code and marks for each tenant."""

    handler: Handler
    marks: BackendMarks

    def handles(self, _: str, kind: str) -> bool:
        return self.handler.handles(kind)

    def of(self, _: str) -> TenantCode:
        return TenantCode(self.handler, self.marks)

    def own_backends_down(self) -> int:
        return 0
