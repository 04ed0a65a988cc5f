"""The channels of a process: each provider and each path leads to one."""

from collections.abc import Mapping, Sequence

import pytest

from shared.channels.meta.channel import MetaChannel
from shared.domain.errors import UnknownState
from shared.pipeline.channels import Channels
from tests.support.second_channel import AcmeChannel


def acme() -> AcmeChannel:
    return AcmeChannel("secret", "https://pombo.example.com", "http://127.0.0.1:9")


class Namesake(AcmeChannel):
    """Another path, and the provider of another."""

    webhooks: Mapping[str, Sequence[str]] = {"namesake": ("POST",)}


class Squatter(AcmeChannel):
    """Another provider, and a path of another."""

    provider = "squatter"
    webhooks: Mapping[str, Sequence[str]] = {"squatter": ("POST",), "acme/status": ("POST",)}


def test_a_channel_is_found_by_its_provider_and_by_each_of_its_paths() -> None:
    meta, second = MetaChannel(), acme()
    channels = Channels.of(meta, second)
    assert (channels["meta"], channels["acme"]) == (meta, second)
    assert [channels.at(path) for path in ("whatsapp", "acme", "acme/status")] == [meta, second, second]


def test_a_provider_or_a_path_without_a_channel_is_not_found() -> None:
    channels = Channels.of(MetaChannel())
    assert channels.at("acme") is None
    with pytest.raises(UnknownState):
        channels.require("acme")


@pytest.mark.parametrize(("other", "what"), [(Namesake, "provider"), (Squatter, "path")])
def test_two_channels_of_one_provider_or_of_one_path_are_rejected(other: type[AcmeChannel], what: str) -> None:
    second = other("secret", "https://pombo.example.com", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match=f"Two channels have one {what}: .*acme"):
        Channels.of(acme(), MetaChannel(), second)
