"""Plans: what Terraform would create, parsed for the rules."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource as planned. A value that is known only after the apply is None."""

    address: str
    type: str
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def block(self, *names: str) -> Mapping[str, Any]:
        """The only block of this name, and within it that of the next name; empty if there is none."""
        found: Mapping[str, Any] = self.values
        for name in names:
            blocks = found.get(name) or []
            found = blocks[0] if blocks and blocks[0] is not None else {}
        return found


@dataclass(frozen=True, slots=True)
class Service(Resource):
    """A Cloud Run service."""

    @property
    def key(self) -> str:
        """Its short name."""
        return str(self["name"]).removeprefix("pombo-")

    @property
    def container(self) -> Mapping[str, Any]:
        return self.block("template", "containers")

    @property
    def env(self) -> dict[str, str | None]:
        """The variables with plain values."""
        return {it["name"]: it.get("value") for it in self.container["env"] if not it["value_source"]}

    @property
    def secrets(self) -> dict[str, Mapping[str, str]]:
        """The variables that are secrets: their names, and where their values are."""
        return {
            it["name"]: it["value_source"][0]["secret_key_ref"][0]
            for it in self.container["env"]
            if it["value_source"] and it["value_source"][0]["secret_key_ref"]
        }

    @property
    def concurrency(self) -> int:
        """How many requests Cloud Run sends an instance at once."""
        return int(self.block("template")["max_instance_request_concurrency"])

    @property
    def timeout(self) -> int:
        """The request timeout in seconds."""
        return int(str(self.block("template")["timeout"]).removesuffix("s"))

    @property
    def max_instances(self) -> int:
        return int(self.block("template", "scaling")["max_instance_count"])


class Plan:
    """The plan of one root, as `terraform show -json` writes it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.resources = [
            Resource(it["address"], it["type"], it["change"]["after"])
            for it in document["resource_changes"]
            if it["mode"] == "managed" and it["change"]["after"] is not None
        ]

    def of(self, *types: str) -> list[Resource]:
        """The resources of these types."""
        if len(types) == 1:
            return list(self._by_type.get(types[0], ()))
        return [it for it in self.resources if it.type in types]

    @cached_property
    def _by_type(self) -> Mapping[str, Sequence[Resource]]:
        found: dict[str, list[Resource]] = {}
        for it in self.resources:
            found.setdefault(it.type, []).append(it)
        return found

    def one(self, type_: str) -> Resource:
        """The only resource of this type."""
        (found,) = self.of(type_)
        return found

    @property
    def services(self) -> list[Service]:
        return [Service(it.address, it.type, it.values) for it in self.of("google_cloud_run_v2_service")]

    def service(self, key: str) -> Service:
        (found,) = [it for it in self.services if it.key == key]
        return found

    @property
    def queues(self) -> dict[str, Resource]:
        """The queues by name."""
        return {it["name"]: it for it in self.of("google_cloud_tasks_queue")}

    @property
    def members(self) -> Iterator[Resource]:
        """The bindings: who was given a role. One of several accounts counts as one of each."""
        for it in self.resources:
            if it.type.endswith("_iam_member"):
                yield it
            elif it.type.endswith("_iam_binding"):
                for member in it["members"]:
                    yield Resource(it.address, it.type, {**it.values, "member": member})

    @property
    def variables(self) -> Mapping[str, Any]:
        """The root's variables that were set or have a default."""
        return {name: it.get("value") for name, it in self.document["variables"].items()}

    @property
    def root_variables(self) -> Mapping[str, Mapping[str, Any]]:
        """The root's variables as declared."""
        declared: Mapping[str, Mapping[str, Any]] = self.document["configuration"]["root_module"]["variables"]
        return declared

    def given(self, name: str) -> Any:
        """A variable's value; text from a command line is parsed as Terraform does."""
        value = self.variables.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            return value

    @property
    def outputs(self) -> Mapping[str, Any]:
        return {name: it.get("value") for name, it in self.document["planned_values"]["outputs"].items()}
