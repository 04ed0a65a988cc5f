"""What is mutated, and which tests have to notice."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """Modules with their nearest tests. Tests in process are chosen line by line; those of `programs`, which start
    processes of their own, run as whole files where the others noticed nothing.
    """

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    programs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_whole: bool = False
    """Every mutant, not a sample."""

    def paths(self, tree: Path) -> list[Path]:
        """Its modules, sorted."""
        return sorted(
            path for pattern in self.modules for path in tree.glob(pattern) if path.suffix == ".py" and path.is_file()
        )

    def programs_of(self, name: str) -> Sequence[str]:
        """The test files that start what this module is part of."""
        return [file for pattern, files in self.programs if fnmatch(name, pattern) for file in files]


SERVICES_IN_PROCESS = (
    "tests/services/api",
    "tests/services/internal",
    "tests/services/test_accept.py",
    "tests/services/test_callers.py",
    "tests/services/test_outbound_codes.py",
    "tests/services/test_sweep.py",
    "tests/services/test_webhook_app.py",
)
STACK = ("tests/services/test_stack_command_line.py", "tests/services/test_stack_health.py")
CONNECTION = ("tests/services/test_bounded_protocol.py", "tests/services/test_bounded_worker.py")

TARGETS = (
    Target("domain", ("shared/domain/**/*.py",), ("tests/unit",), is_whole=True),
    Target(
        "pipeline and adapters",
        (
            "shared/*.py",
            "shared/bootstrap/*.py",
            "shared/config/*.py",
            "shared/pipeline/*.py",
            "shared/operations/**/*.py",
            "shared/channels/**/*.py",
            "shared/handlers/*.py",
            "shared/net/*.py",
            "shared/tenants/*.py",
        ),
        ("tests/unit", *SERVICES_IN_PROCESS),
        (
            ("shared/bootstrap/*.py", STACK),
            ("shared/operations/dead_letters.py", ("tests/services/test_dead_letters_decided.py",)),
            ("shared/operations/[rs]*.py", ("tests/contract/test_registry_changes.py",)),
        ),
    ),
    Target(
        "stores and queues",
        ("shared/stores/**/*.py", "shared/queues/*.py", "shared/secrets/*.py"),
        ("tests/contract",),
    ),
    Target(
        "programs",
        (
            "cli/*.py",
            "cli/conversations/*.py",
            "cli/dead/*.py",
            "cli/doctor/*.py",
            "cli/registry/*.py",
            "services/**/*.py",
        ),
        ("tests/unit", *SERVICES_IN_PROCESS),
        (
            (
                "cli/dead/*.py",
                ("tests/services/test_dead_letters.py", "tests/services/test_dead_letters_decided.py"),
            ),
            ("cli/doctor/*.py", ("tests/services/test_doctor.py",)),
            ("cli/registry/*.py", ("tests/services/test_stack_tenants.py",)),
            ("cli/trace.py", ("tests/services/test_trace_stories.py",)),
            ("cli/cloud_logs.py", ("tests/services/test_trace_cloud.py",)),
            ("cli/[cmrsu]*.py", STACK),
            ("services/bounded_worker.py", ("tests/services/test_bounded_worker.py",)),
            ("services/bounded_protocol.py", CONNECTION),
            ("services/exchange.py", CONNECTION),
            ("services/request_reader.py", CONNECTION),
            ("services/webhook/admission.py", ("tests/services/test_webhook_load.py",)),
            ("services/*.py", STACK),
        ),
    ),
)

PRELOADED = (
    "coverage",
    "cryptography.x509",
    "flask",
    "functions_framework",
    "google.cloud.firestore_v1",
    "google.cloud.tasks_v2",
    "grpc",
    "gunicorn.app.base",
    "httpcore",
    "httpx",
    "hypothesis.strategies",
    "redis",
)
"""What the tests import and nobody mutates: once for all forks."""
