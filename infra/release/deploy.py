"""Deploy: from an empty project with billing to the running webhook, in one command; repeated, it deploys what changed.

make deploy PROJECT=my-project REGION=europe-west1
python3 -m infra.release.deploy --project=my-project --region=europe-west1 --environment=prod
META_APP_SECRET=… WHATSAPP_ACCESS_TOKEN=… python3 -m infra.release.deploy --project=… --region=… --phone-number-id=…

It asks, hidden, for the secrets that only Meta has, makes the others, applies both Terraform roots, has Google build
all services from this folder (gcloud run deploy --source) and moves the traffic. It destroys nothing.
Python's own library, gcloud and terraform are all it needs. docs/deploy.md has each step by hand.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from infra.release import first_secrets, place, public_checks, source_images, variables
from infra.release.place import ENVIRONMENTS, Place
from infra.release.roots import PAUSE_SECONDS, Root
from infra.release.services import AS_DEPLOYED
from infra.release.tools import Refused

REPOSITORY = Path(__file__).resolve().parents[2]
STEPS = 6 + len(AS_DEPLOYED)

NEXT = """
The webhook and the API run. What is left is at Meta (docs/deploy.md, step 7):
  1. WhatsApp, Configuration, Webhook: give it this callback URL
         {url}
     and the verify token, which no command of ours prints; Secret Manager shows it:
         https://console.cloud.google.com/security/secret-manager/secret/META_VERIFY_TOKEN/versions?project={project}
  2. Subscribe to messages, and to the news of the account that step 7 names.
  3. Subscribe the WhatsApp account to the app, register the number, publish the app; then write to the number.
Commit {variables} and the two .terraform.lock.hcl that terraform has written.
"""


def deploy(where: Place, asked: argparse.Namespace) -> str:
    """The address of the webhook. Raises Refused."""
    _step(1, "Looking at gcloud, terraform and the project")
    place.check_words(where)
    account = place.check_tools()
    place.check_project(where)
    if where.variables.exists():
        variables.check(where)
    else:
        number = asked.phone_number_id or os.environ.get("WHATSAPP_PHONE_NUMBER_ID") or _typed_number()
        variables.write(where, number, asked.handler, _email(account))
        print(f"    Written: {where.variables}")
    _step(2, "Turning on what is needed before Terraform, and waiting until it answers")
    place.turn_on_apis(where)
    place.check_region(where)
    _step(3, "Secrets")
    values = first_secrets.values_of(first_secrets.missing(where), asked.secrets_from)
    print(f"    To be added: {', '.join(values)}." if values else "    Each has a version already.")
    return _build_up(where, values, asked.pause)


def _build_up(where: Place, values: dict[str, str], pause: float) -> str:
    """The steps that need no answer at the terminal."""
    _step(4, "bootstrap: the APIs, the repository of images, the secrets (a few minutes the first time)")
    place.make_state_bucket(where)
    place.check_no_other_environment(where)
    bootstrap = Root(where.bootstrap, where.state_bucket, variables.of_bootstrap(where))
    bootstrap.init()
    _say_whether(bootstrap.apply(pause))
    for name, value in values.items():
        first_secrets.add(name, value, where)
    _step(5, f"{where.environment}: queues, database, services (about half an hour the first time)")
    environment = Root(where.environment_root, where.state_bucket, {})
    environment.init()
    _say_whether(environment.apply(pause))
    for number, kind in enumerate(AS_DEPLOYED, 6):
        _step(number, f"Building and deploying {kind} (a few minutes where it has changed)")
        print(f"    {source_images.deploy(source_images.SourceService(kind, where))}", flush=True)
    _step(6 + len(AS_DEPLOYED), "Asking the public services")
    url = environment.output("webhook_url")
    for kind, address in (("api", environment.output("api_url")), ("webhook", url.removesuffix("/webhooks/whatsapp"))):
        print(f"    {public_checks.check(kind, address)} Its address: {address}", flush=True)
    return url


def _step(number: int, what: str) -> None:
    print(f"[{number}/{STEPS}] {what}", flush=True)


def _say_whether(changed: bool) -> None:
    print("    Applied." if changed else "    Nothing to change.", flush=True)


def _email(account: str) -> str | None:
    """Of a person: a service account does not read alerts."""
    return None if account.endswith("gserviceaccount.com") else account


def _typed_number() -> str:
    if not sys.stdin.isatty():
        raise Refused("Say the phone number ID: --phone-number-id, or the variable WHATSAPP_PHONE_NUMBER_ID.")
    return input("Phone number ID (WhatsApp, API Setup; not the number itself): ").strip()


class OneSentence(argparse.ArgumentParser):
    """A wrong call is one sentence, and not the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"pombo: {message[:1].upper()}{message[1:]}; {self.prog} --help has examples.\n")


def parser_of(prog: str, description: str | None) -> OneSentence:
    """What every program that deploys is asked."""
    parser = OneSentence(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--project", required=True, help="the project's ID; it exists and has billing")
    parser.add_argument("--region", required=True, help="of everything; it cannot be changed later")
    return parser


def ended(work: Callable[[], None]) -> None:
    """Do it; a refusal is one sentence and exit 1, Ctrl-C one and exit 130."""
    try:
        work()
    except Refused as refusal:
        sys.exit(f"pombo: {refusal}")
    except KeyboardInterrupt:
        print("pombo: Stopped. The same command continues from here.", file=sys.stderr)
        sys.exit(130)


def main(given: Sequence[str] | None = None) -> None:
    """Deploy, and say what is next."""
    parser = parser_of("deploy", __doc__)
    parser.add_argument("--environment", choices=ENVIRONMENTS, default="staging", help="(default %(default)s)")
    parser.add_argument("--phone-number-id", help="the sender; asked for the first time")
    parser.add_argument("--handler", default="handlers.echo:handle", help="the first time (default %(default)s)")
    parser.add_argument(
        "--secrets-from",
        type=Path,
        metavar="FILE",
        help="lines of NAME=value; else the environment, else they are asked",
    )
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    where = Place(asked.project, asked.region, asked.environment, REPOSITORY)

    def work() -> None:
        url = deploy(where, asked)
        print(NEXT.format(url=url, project=where.project, variables=where.variables.relative_to(REPOSITORY)))

    ended(work)


if __name__ == "__main__":
    main()
