"""Attached: the stand-in runs once for many commands. Terraform would start it up to four times for each.

https://developer.hashicorp.com/terraform/plugin/debugging (TF_REATTACH_PROVIDERS): Terraform connects to a provider
that runs already, and does not stop it.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.infra.offline.bindings import PROVIDER
from tests.infra.offline.toolchain import Toolchain


@contextmanager
def attached(toolchain: Toolchain) -> Iterator[Toolchain]:
    """The same toolchain, with a stand-in that runs until the end. Its settings are those of the last command that
    configured it, so commands must not run at once.
    """
    command = [toolchain.program, "--until-its-input-ends"]
    environment = {**os.environ, "TF_PLUGIN_MAGIC_COOKIE": "ours"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as provider:
        assert provider.stdout is not None
        _, version, network, address, protocol, _ = provider.stdout.readline().split("|")
        at = {
            "Protocol": protocol,
            "ProtocolVersion": int(version),
            "Pid": provider.pid,
            "Test": True,  # do not stop it
            "Addr": {"Network": network, "String": address},
        }
        yield replace(toolchain, attached=json.dumps({f"registry.terraform.io/{PROVIDER}": at}))
