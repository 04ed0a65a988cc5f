"""A refusal: the gRPC status and the sentence that refuse a call.

Codes and sentences are the real service's if a recording exists:
https://github.com/aertje/cloud-tasks-emulator/blob/main/conformance/golden/realcloud.json (read 2026-11).
"""

import grpc

from local.grpc_methods import CallRefused


class NameUsed(CallRefused):
    """The name belonged to a task that finished or was deleted recently.

    https://github.com/stackkit/laravel-google-cloud-tasks-queue/issues/104 quotes the real answer.
    """

    def __init__(self) -> None:
        super().__init__(
            grpc.StatusCode.ALREADY_EXISTS,
            "The task cannot be created because a task with this name existed too recently.",
        )


def invalid(sentence: str) -> CallRefused:
    return CallRefused(grpc.StatusCode.INVALID_ARGUMENT, sentence)


def not_imitated(what: str) -> CallRefused:
    return CallRefused(grpc.StatusCode.UNIMPLEMENTED, f"The local Cloud Tasks does not support {what}.")


def no_queue() -> CallRefused:
    """The same for a queue that never existed and for one deleted recently (recorded)."""
    return CallRefused(
        grpc.StatusCode.NOT_FOUND,
        "Queue does not exist. If you just created the queue, wait at least a minute for the queue to initialize.",
    )


def queue_exists() -> CallRefused:
    return CallRefused(grpc.StatusCode.ALREADY_EXISTS, "Queue already exists")


def queue_existed() -> CallRefused:
    return CallRefused(
        grpc.StatusCode.FAILED_PRECONDITION,
        "The queue cannot be created because a queue with this name existed too recently.",
    )


def no_task() -> CallRefused:
    return CallRefused(grpc.StatusCode.NOT_FOUND, "Requested entity was not found.")


def task_gone() -> CallRefused:
    return CallRefused(
        grpc.StatusCode.NOT_FOUND,
        "The task no longer exists, though a task with this name existed recently. "
        "The task either successfully completed or was deleted.",
    )


def task_exists() -> CallRefused:
    return CallRefused(grpc.StatusCode.ALREADY_EXISTS, "Requested entity already exists")
