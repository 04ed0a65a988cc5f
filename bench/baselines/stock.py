"""Stock: what most teams write first, with Google's own libraries, and every message durable before the 200.

functions-framework --target webhook --source bench/baselines/stock.py
"""

import hashlib
import hmac
import json
import os
from contextlib import suppress
from functools import cache
from typing import Any

import flask
import functions_framework
import google.auth
import google.auth.transport.requests
import grpc
from google.api_core.exceptions import AlreadyExists
from google.cloud import firestore, tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

SECRET = os.environ["META_APP_SECRET"].encode()
PROJECT = os.environ["GOOGLE_CLOUD_PROJECT"]
QUEUE = f"projects/{PROJECT}/locations/{os.environ['CLOUD_TASKS_LOCATION']}/queues/inbound"
HANDLER = os.environ["INTERNAL_TASK_BASE_URL"] + "/handle"


@cache
def documents() -> firestore.Client:
    """Made in the first request: gunicorn forks before it, and a channel does not survive a fork."""
    if os.environ.get("GCE_METADATA_HOST"):
        credentials, _ = google.auth.default()
        credentials.refresh(google.auth.transport.requests.Request())
    return firestore.Client(project=PROJECT)


@cache
def tasks() -> tasks_v2.CloudTasksClient:
    channel = grpc.insecure_channel(os.environ["CLOUD_TASKS_EMULATOR_HOST"])
    return tasks_v2.CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))


@functions_framework.http
def webhook(request: flask.Request) -> tuple[str, int]:
    body = request.get_data()
    expected = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, request.headers.get("X-Hub-Signature-256", "")):
        return "", 403
    for entry in json.loads(body)["entry"]:
        for change in entry["changes"]:
            for message in change["value"].get("messages", []):
                keep_message(message)
            for status in change["value"].get("statuses", []):
                keep_receipt(status)
    return "", 200


def keep_message(message: dict[str, Any]) -> None:
    key = hashlib.sha1(message["id"].encode()).hexdigest()
    with suppress(AlreadyExists):
        documents().collection("messages").document(key).create(
            {"from": message["from"], "payload": json.dumps(message), "received_at": firestore.SERVER_TIMESTAMP}
        )
    task = {
        "name": f"{QUEUE}/tasks/{key}",
        "http_request": {
            "http_method": tasks_v2.HttpMethod.POST,
            "url": HANDLER,
            "headers": {"Content-Type": "application/json"},
            "body": json.dumps({"key": key}).encode(),
        },
    }
    with suppress(AlreadyExists):
        tasks().create_task(parent=QUEUE, task=task)


def keep_receipt(status: dict[str, Any]) -> None:
    key = hashlib.sha1(status["id"].encode()).hexdigest()
    documents().collection("sent").document(key).set({status["status"]: status["timestamp"]}, merge=True)
