"""The stand-in for the google provider: Terraform starts it and speaks plugin protocol 6 with it.

https://github.com/hashicorp/terraform/blob/main/docs/plugin-protocol/README.md. It tells Terraform where it listens by
go-plugin's handshake: one line on standard output. It has no network and no credentials; an apply invents what an API
would answer.
"""

# ruff: noqa: ARG002 - the protocol's signatures
import json
import os
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import msgpack
from tf.gen import grpc_controller_pb2 as controller
from tf.gen import grpc_controller_pb2_grpc as controller_rpc
from tf.gen import grpc_stdio_pb2_grpc as stdio_rpc
from tf.gen import tfplugin_pb2 as wire
from tf.gen import tfplugin_pb2_grpc as wire_rpc

from tests.infra.offline import behaviour

_UNKNOWN = msgpack.ExtType(0, b"\x00")
_NESTINGS = {"single": 1, "list": 2, "set": 3, "map": 4}
_ERROR = 1
_WRITE_ONLY = b"\x58\x01"
"""Field 11 of an attribute, true: newer than the protocol in the package `tf`."""


def _is_unknown(value: Any) -> bool:
    return isinstance(value, msgpack.ExtType)


def _decoded(value: Any) -> Any:
    if value.msgpack:
        return msgpack.unpackb(value.msgpack, raw=False, strict_map_key=False)
    return json.loads(value.json) if value.json else None


def _encoded(value: Any) -> Any:
    return wire.DynamicValue(msgpack=msgpack.packb(value, use_bin_type=True))


def _block(block: behaviour.Block) -> Any:
    made = wire.Schema.Block()
    for name, it in block["attributes"].items():
        flags = {flag: it.get(flag, False) for flag in ("required", "optional", "computed")}
        attribute = made.attributes.add(name=name, type=json.dumps(it["type"]).encode(), **flags)
        if it.get("write_only"):
            attribute.MergeFromString(_WRITE_ONLY)
    for name, it in block["blocks"].items():
        made.block_types.add(
            type_name=name,
            block=_block(it["block"]),
            nesting=_NESTINGS[it["nesting"]],
            min_items=it.get("min", 0),
            max_items=it.get("max", 0),
        )
    return made


def _schema(block: behaviour.Block) -> Any:
    return wire.Schema(version=0, block=_block(block))


class _Provider(wire_rpc.ProviderServicer):  # type: ignore[misc]
    def __init__(self, schema: dict[str, Any], immutable: dict[str, list[str]]) -> None:
        self._resources = schema["resources"]
        self._data = schema["data"]
        self._immutable = {name: frozenset(paths) for name, paths in immutable.items()}
        self._defaults: dict[str, str] = {}
        self._capabilities = wire.ServerCapabilities(get_provider_schema_optional=True)
        self._answer = wire.GetProviderSchema.Response(
            provider=_schema(schema["provider"]),
            resource_schemas={name: _schema(block) for name, block in self._resources.items()},
            data_source_schemas={name: _schema(block) for name, block in self._data.items()},
            server_capabilities=self._capabilities,
        )

    def GetMetadata(self, request: Any, context: Any) -> Any:
        return wire.GetMetadata.Response(
            server_capabilities=self._capabilities,
            resources=[{"type_name": name} for name in self._resources],
            data_sources=[{"type_name": name} for name in self._data],
        )

    def GetProviderSchema(self, request: Any, context: Any) -> Any:
        return self._answer

    def ValidateProviderConfig(self, request: Any, context: Any) -> Any:
        return wire.ValidateProviderConfig.Response()

    def ValidateDataResourceConfig(self, request: Any, context: Any) -> Any:
        return wire.ValidateDataResourceConfig.Response()

    def ValidateResourceConfig(self, request: Any, context: Any) -> Any:
        response = wire.ValidateResourceConfig.Response()
        block, config = self._resources[request.type_name], _decoded(request.config)
        for refusal in behaviour.refusals(block, config, _is_unknown):
            said = response.diagnostics.add(severity=_ERROR, summary=refusal.sentence)
            for step in refusal.path:
                said.attribute.steps.add(**{"attribute_name" if isinstance(step, str) else "element_key_int": step})
        return response

    def ConfigureProvider(self, request: Any, context: Any) -> Any:
        config = _decoded(request.config) or {}
        names = ("project", "region", "zone")
        self._defaults = {name: config[name] for name in names if isinstance(config.get(name), str)}
        return wire.ConfigureProvider.Response()

    def UpgradeResourceState(self, request: Any, context: Any) -> Any:
        return wire.UpgradeResourceState.Response(upgraded_state=wire.DynamicValue(json=request.raw_state.json))

    def ReadResource(self, request: Any, context: Any) -> Any:
        return wire.ReadResource.Response(new_state=request.current_state)

    def ImportResourceState(self, request: Any, context: Any) -> Any:
        """As if the resource had been created with only what its id says, in the provider's own project and region."""
        block = self._resources[request.type_name]
        imported = behaviour.imported(block, request.id, self._defaults)
        about = request.type_name.removeprefix("google_")
        state = _encoded(behaviour.settled(block, imported, about, _is_unknown, {}, fill=True))
        return wire.ImportResourceState.Response(
            imported_resources=[{"type_name": request.type_name, "state": state, "private": b""}]
        )

    def PlanResourceChange(self, request: Any, context: Any) -> Any:
        block = self._resources[request.type_name]
        prior = _decoded(request.prior_state)
        plan = behaviour.planned(
            block, _decoded(request.proposed_new_state), prior, _UNKNOWN, _is_unknown, self._defaults
        )
        immutable = self._immutable.get(request.type_name, frozenset())
        response = wire.PlanResourceChange.Response(planned_state=_encoded(plan))
        for name in behaviour.replaced(immutable, prior, plan, _is_unknown):
            response.requires_replace.add().steps.add(attribute_name=name)
        return response

    def ApplyResourceChange(self, request: Any, context: Any) -> Any:
        block, plan = self._resources[request.type_name], _decoded(request.planned_state)
        about = request.type_name.removeprefix("google_")
        return wire.ApplyResourceChange.Response(
            new_state=_encoded(behaviour.settled(block, plan, about, _is_unknown, {}))
        )

    def ReadDataSource(self, request: Any, context: Any) -> Any:
        answers = {"number": behaviour.PROJECT_NUMBER} if request.type_name == "google_project" else {}
        about = request.type_name.removeprefix("google_")
        state = behaviour.settled(
            self._data[request.type_name], _decoded(request.config), about, _is_unknown, answers, fill=True
        )
        return wire.ReadDataSource.Response(state=_encoded(state))

    def GetFunctions(self, request: Any, context: Any) -> Any:
        return wire.GetFunctions.Response()

    def StopProvider(self, request: Any, context: Any) -> Any:
        return wire.StopProvider.Response()


def main(schema: Path, immutable: Path, *options: str) -> None:
    """Serve until Terraform stops it, or with --until-its-input-ends until then (attached.py)."""
    if "TF_PLUGIN_MAGIC_COOKIE" not in os.environ:
        sys.exit("This is a provider: Terraform starts it.")
    ended = threading.Event()

    class Controller(controller_rpc.GRPCControllerServicer):  # type: ignore[misc]
        def Shutdown(self, request: Any, context: Any) -> Any:
            ended.set()
            return controller.Empty()

    class Output(stdio_rpc.GRPCStdioServicer):  # type: ignore[misc]
        def StreamStdio(self, request: Any, context: Any) -> Any:
            if not options:  # each command that connects would hold a thread until the end
                ended.wait()
            return iter(())

    server = grpc.server(ThreadPoolExecutor(max_workers=8), options=[("grpc.max_send_message_length", -1)])
    provider = _Provider(json.loads(schema.read_text()), json.loads(immutable.read_text()))
    wire_rpc.add_ProviderServicer_to_server(provider, server)
    controller_rpc.add_GRPCControllerServicer_to_server(Controller(), server)
    stdio_rpc.add_GRPCStdioServicer_to_server(Output(), server)
    with tempfile.TemporaryDirectory() as directory:
        server.add_insecure_port(f"unix:{directory}/socket")
        server.start()
        print(f"1|6|unix|{directory}/socket|grpc|", flush=True)
        if options:
            sys.stdin.read()
            ended.set()
        ended.wait()
        server.stop(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
