"""Meta's onboarding: check an access token and its number, and subscribe our app to the account's webhooks."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp (seen November 2026), and for the token
# https://developers.facebook.com/docs/graph-api/reference/debug_token
# onboarding_answers.py reads the answers and words the refusals. Meta's own texts are never repeated: they may quote
# the token.

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from shared.channels.meta import onboarding_answers as answers
from shared.channels.meta.errors import graph_error
from shared.channels.meta.fields import mapping, objects
from shared.channels.meta.onboarding_answers import Step
from shared.domain.limits import PostTimes
from shared.domain.onboarding import Checked, NoSuchNumber, OnboardingRefused, OnboardingUnavailable
from shared.net import bounded_json
from shared.net.egress_policy import PUBLIC, EgressPolicy

if TYPE_CHECKING:
    from shared.net.bounded_http import HttpResponse, Poster

PAGES = 20
"""Pages of an account's numbers that are read at most, of 100 each; Meta allows an account far fewer numbers."""

_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
_ID = re.compile(r"[0-9]{1,32}")
USUAL_TIMES = PostTimes()


@dataclass(frozen=True, slots=True)
class App:
    """Our Meta app, which signs the webhooks."""

    id: str
    secret: str = field(repr=False)

    @property
    def token(self) -> str:
        return f"{self.id}|{self.secret}"


class MetaOnboarding:
    """The onboarding port for Meta. It connects on the first call.

    Without an `app` the token's app, permissions and end are not checked, only whether it gives access to the number.
    `reach` is where `base_url` may lead.
    """

    def __init__(
        self,
        *,
        app: App | None,
        base_url: str,
        version: str,
        times: PostTimes = USUAL_TIMES,
        monotonic: Callable[[], float] = time.monotonic,
        reach: EgressPolicy = PUBLIC,
    ) -> None:
        self._app = app
        self._root = f"{base_url.rstrip('/')}/{version}"
        self._times = times
        self._monotonic = monotonic
        self._reach = reach
        self._lock = threading.Lock()
        self._poster: Poster | None = None

    def check(self, provider_id: str, account: str, token: str) -> Checked:
        """Ask Meta whether this token may send as this number of this account, for our app. Changes nothing. Raises
        OnboardingRefused and OnboardingUnavailable.
        """
        if not _TOKEN.fullmatch(token):
            raise OnboardingRefused("The access token is empty, or has blanks or other characters that no token has.")
        if not _ID.fullmatch(account):
            raise OnboardingRefused(answers.NO_ACCOUNT_ID)
        inspected = self._inspected(account, token)
        display = self._number(provider_id, account, token)
        if display is None:
            raise NoSuchNumber(answers.NOT_ITS_NUMBER)
        return Checked(display, inspected.expires_at, inspected.data_access_expires_at)

    def subscribe(self, account: str, token: str) -> None:
        """Subscribe our app to the account's webhooks; a subscription that exists is success. The call has no body: one
        that overrides the callback URL is refused before a first without. Raises OnboardingRefused and
        OnboardingUnavailable, also if Meta then does not list the app.
        """
        path = f"{quote(account, safe='')}/subscribed_apps"
        self._read(Step.SUBSCRIBE, self._post(path, token))
        listed = self._read(Step.SUBSCRIBED, self._get(path, token))
        if not answers.is_subscribed(listed, self._app.id if self._app else None):
            raise OnboardingUnavailable("Meta accepted the subscription, but does not list the app yet.")

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        with self._lock:
            poster, self._poster = self._poster, None
        if poster:
            poster.close()

    def _inspected(self, account: str, token: str) -> answers.Inspected:
        """What Meta knows of the token. It stands in the query, the only place where Meta takes it; the app's own token
        is in the header.
        """
        if self._app is None:
            return answers.Inspected()
        query = urlencode({"input_token": token})
        body = self._read(Step.INSPECT, self._get(f"debug_token?{query}", self._app.token))
        return answers.inspected(body, self._app.id, account)

    def _number(self, provider_id: str, account: str, token: str) -> str | None:
        """The number as Meta shows it; None if the account does not have it."""
        query = {"fields": "id,display_phone_number", "limit": "100"}
        for _ in range(PAGES):
            path = f"{quote(account, safe='')}/phone_numbers?{urlencode(query)}"
            page = self._read(Step.NUMBERS, self._get(path, token))
            for number in objects(page.get("data")):
                if str(number.get("id")) == provider_id:
                    return str(number.get("display_phone_number") or "")
            after = answers.next_page(page)
            if after is None:
                return None
            query["after"] = after
        return None

    def _read(self, step: Step, response: "HttpResponse") -> Mapping[str, Any]:
        """The document of a 2xx without an error. Raises OnboardingRefused and OnboardingUnavailable."""
        error = graph_error(response.body)
        if error or not 200 <= response.status < 300:
            raise answers.failure(step, response.status, error)
        try:
            document = mapping(bounded_json.loads(response.body or b""))
        except bounded_json.NotJson:
            document = {}
        if not document:
            raise OnboardingUnavailable("Meta's answer cannot be read. Try again later.")
        return document

    def _get(self, path: str, bearer: str) -> "HttpResponse":
        return self._call(lambda poster, headers: poster.get(f"{self._root}/{path}", headers), bearer)

    def _post(self, path: str, bearer: str) -> "HttpResponse":
        return self._call(lambda poster, headers: poster.post(f"{self._root}/{path}", headers, b""), bearer)

    def _call(self, make: Callable[["Poster", Mapping[str, str]], "HttpResponse"], bearer: str) -> "HttpResponse":
        from shared.net.bounded_http import NoAnswer, NotSent

        try:
            return make(self._connections(), {"Authorization": f"Bearer {bearer}"})
        except (NotSent, NoAnswer) as error:
            raise OnboardingUnavailable("Meta cannot be reached. Try again later.") from error

    def _connections(self) -> "Poster":
        from shared.net.bounded_http import Poster

        with self._lock:
            if self._poster is None:
                self._poster = Poster(self._times, self._monotonic, reach=self._reach)
            return self._poster
