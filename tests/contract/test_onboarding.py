"""Meta's onboarding against the simulator: a number is connected, and each way in which Meta refuses it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from local.whatsapp.accounts import APP_ID
from local.whatsapp.webhook_payloads import PORTFOLIO_ID
from shared import config
from shared.bootstrap.backends import build_store
from shared.bootstrap.connect import build_connect
from shared.bootstrap.secrets import build_credentials, build_secret_cache
from shared.channels.meta.onboarding import App, MetaOnboarding
from shared.domain.onboarding import Checked, OnboardingRefused, OnboardingUnavailable
from shared.domain.tenants import Sender
from shared.net.egress_policy import ANYWHERE
from tests.support.whatsapp_harness import SECRET, SENDER, Simulator, Webhook, message, running, until

NUMBER, ACCOUNT, TOKEN = "100000000000002", "300000000000002", "token-of-the-second"


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulator, Webhook]]:
    with running(tmp_path_factory.mktemp("simulator")) as (simulator, webhook):
        sender = {"phone_number_id": NUMBER, "waba": ACCOUNT, "token": TOKEN, "display": "15550003333"}
        simulator.control("POST", "senders", sender | {"subscribed": False})
        yield simulator, webhook


def meta(simulator: Simulator, secret: str = SECRET) -> closing[MetaOnboarding]:
    app = App(APP_ID, secret)
    return closing(MetaOnboarding(app=app, base_url=simulator.address, version="v25.0", reach=ANYWHERE))


def test_connected_number_gets_its_webhooks(world: tuple[Simulator, Webhook]) -> None:
    simulator, webhook = world
    simulator.inbound(phone_number_id=NUMBER)
    with meta(simulator) as ours:
        assert ours.check(NUMBER, ACCOUNT, TOKEN) == Checked("15550003333")
        ours.subscribe(ACCOUNT, TOKEN)
        ours.subscribe(ACCOUNT, TOKEN)
    simulator.inbound(phone_number_id=NUMBER)
    until(lambda: webhook.messages, "the message after the subscription")
    simulator.quiet()
    assert len(webhook.messages) == 1
    kinds = [call["type"] for call in simulator.control("GET", "calls")]
    assert kinds == [
        *("get debug_token", "get phone_numbers"),
        *("post subscribed_apps", "get subscribed_apps") * 2,
    ]


def test_each_reason_is_refused_in_a_sentence_of_its_own(world: tuple[Simulator, Webhook]) -> None:
    simulator, _ = world

    def refusal(number: str = NUMBER, account: str = ACCOUNT, secret: str = SECRET, **token: Any) -> str:
        usual = {"state": "valid", "app_id": APP_ID, "scopes": ["whatsapp_business_management"], "target_ids": True}
        usual["scopes"] = [*usual["scopes"], "whatsapp_business_messaging"]
        simulator.control("POST", "tokens", usual | {"token": TOKEN} | token)
        with meta(simulator, secret) as ours, pytest.raises(OnboardingRefused) as raised:
            ours.check(number, account, TOKEN)
        return raised.value.sentence

    sentences = [
        refusal(state="expired"),
        refusal(app_id="7"),
        refusal(scopes=["whatsapp_business_management"]),
        refusal(account=PORTFOLIO_ID),
        refusal(number=SENDER),
        refusal(secret="wrong"),
    ]
    assert len(set(sentences)) == len(sentences)
    assert refusal(account=PORTFOLIO_ID, target_ids=False) == sentences[3]
    assert refusal(account="300000000000009", target_ids=False) == sentences[3]
    assert TOKEN not in "".join(sentences)


def test_outage_is_no_refusal(world: tuple[Simulator, Webhook]) -> None:
    simulator, _ = world
    simulator.fault(on="provider", kind="refuse")
    with meta(simulator) as ours:
        with pytest.raises(OnboardingUnavailable):
            ours.check(NUMBER, ACCOUNT, TOKEN)
        assert ours.check(NUMBER, ACCOUNT, TOKEN).display == "15550003333"


def test_revoked_token_is_replaced_by_a_reconnect(world: tuple[Simulator, Webhook], tmp_path: Path) -> None:
    simulator, _ = world
    environ = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "WHATSAPP_API_BASE_URL": simulator.address}
    environ |= {"META_APP_ID": APP_ID, "META_APP_SECRET": SECRET}
    settings, drained = config.load(environ, config.CLI), []
    credentials = build_credentials(config.load(environ, config.INTERNAL), build_secret_cache(settings))

    def status() -> int:
        call = message(text={"body": "hi"})
        return simulator.call(call, credentials.newest(sender), f"/v25.0/{NUMBER}/messages").status_code

    with closing(build_store(settings)) as store:  # type: ignore[type-var]
        connect = build_connect(settings, store)
        sender = connect.connect(Sender("acme", "meta", NUMBER, account=ACCOUNT), TOKEN).sender
        assert (status(), sender.display) == (200, "15550003333")
        simulator.control("POST", "tokens", {"token": TOKEN, "replace": "successor"})
        assert status() == 401
        with pytest.raises(OnboardingRefused, match="invalid"):
            connect.reconnect(sender, TOKEN, drained.append)
        assert drained == []
        connect.reconnect(sender, "successor", drained.append)
        assert (status(), drained) == (200, [sender.id])
        connect.onboarding.close()  # type: ignore[attr-defined]
