"""Claims: a number is given to a tenant, or gets another access token, once the provider accepts the token for it.

The command line and the API share this. A tenant's own claim is answered so that it learns nothing of other tenants.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.domain.onboarding import NoSuchNumber
from shared.domain.tenants import Sender
from shared.operations.connect import Connect, Connected, StartDrain
from shared.operations.registry import Invalid, Taken
from shared.operations.senders import NO_SUCH_NUMBER, add_sender, check_free, set_sender
from shared.pipeline.clock import Clock
from shared.pipeline.registry import Registry
from shared.tenants.entries import is_gone, sender_name

OWN_ALREADY = "This tenant has the number already: reconnect it to give it another access token."


@dataclass(frozen=True, slots=True)
class Claims:
    """`environment`: the senders that the environment names. The methods raise what those of Connect raise, and
    Refused.
    """

    registry: Registry
    clock: Clock
    environment: Sequence[Sender]
    connect: Connect

    def add(self, sender: Sender, token: str) -> Connected:
        """An operator's claim. Raises Taken with a sentence that names the owner, before the provider is asked: the
        token would replace the owner's.
        """
        check_free(self.registry, self.environment, sender)
        connected = self.connect.connect(sender, token)
        added = add_sender(self.registry, self.connect.store, self.clock, self.environment, connected.sender)
        return Connected(added, connected.checked)

    def add_own(self, sender: Sender, token: str) -> Connected:
        """A tenant's claim of a number for itself: the provider is asked first, whether the number is free or not.
        Raises NoSuchNumber, with one sentence, if the provider knows no such number and if another tenant has it, and
        Invalid if the tenant has it already.
        """
        try:
            self.connect.onboarding.check(sender.provider_id, sender.account, token)
            return self.add(sender, token)
        except NoSuchNumber as error:
            raise NoSuchNumber(NO_SUCH_NUMBER) from error
        except Taken as error:
            if sender.tenant == self._owner(sender.id):
                raise Invalid("id", OWN_ALREADY) from error
            raise NoSuchNumber(NO_SUCH_NUMBER) from error

    def _owner(self, id: str) -> str | None:
        """The tenant that has the number; None also if it is being removed."""
        ours = next((one.tenant for one in self.environment if one.id == id), None)
        entry = self.registry.entries([sender_name(id)])[0]
        return ours or (entry.tenant if entry and not is_gone(entry) else None)

    def reconnect(self, sender: Sender, token: str, start_drain: StartDrain) -> Connected:
        """Give a sender another token, and start to send what waits. One that was sent from with the environment's
        token gets its own. Raises NotFound if it was removed meanwhile: what waits is not sent then.
        """
        if sender.id in (ours.id for ours in self.environment):
            return self.connect.reconnect(sender, token, start_drain)
        if sender.credential:

            def if_there(id: str) -> None:
                set_sender(self.registry, self.clock, id, lambda now: now)
                start_drain(id)

            return self.connect.reconnect(sender, token, if_there)
        connected = self.connect.connect(sender, token)

        def change(before: Sender) -> Sender:
            return replace(before, credential=connected.sender.credential, display=connected.sender.display)

        now = set_sender(self.registry, self.clock, connected.sender.id, change)
        start_drain(now.id)
        return Connected(now, connected.checked)
