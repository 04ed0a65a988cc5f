"""pywa's Flask server, as its documentation shows it (https://pywa.readthedocs.io, 4.5): it stores nothing.

gunicorn --worker-class gthread --threads 16 --chdir bench/baselines pywa_server:app
"""

import os

import flask
from pywa import WhatsApp, types

app = flask.Flask("pywa_server")
whatsapp = WhatsApp(
    phone_id="100000000000001",
    token="a-token",
    server=app,
    verify_token=os.environ["META_VERIFY_TOKEN"],
    app_secret=os.environ["META_APP_SECRET"],
    webhook_endpoint="/webhooks/whatsapp",
)
handled = {"messages": 0, "statuses": 0}


@whatsapp.on_message
def on_message(_: WhatsApp, __: types.Message) -> None:
    handled["messages"] += 1


@whatsapp.on_message_status
def on_status(_: WhatsApp, __: types.MessageStatus) -> None:
    handled["statuses"] += 1


@app.get("/handled")
def show_handled() -> dict[str, int]:
    """What the handlers saw: the benchmark checks that pywa dropped nothing."""
    return handled
