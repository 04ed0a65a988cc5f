"""The calls on queues, through the unmodified client. "Recorded" is aertje/cloud-tasks-emulator,
conformance/golden/realcloud.json: what the real service answered."""

import sqlite3
import uuid
from contextlib import closing

import pytest
from google.api_core import exceptions
from google.cloud import tasks_v2
from google.protobuf.field_mask_pb2 import FieldMask

from tests.support.tasks_harness import LOCATION, Emulator

State = tasks_v2.Queue.State


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


def test_a_queue_created_without_settings_gets_the_services_defaults(emulator):
    """https://cloud.google.com/tasks/docs/configuring-queues shows them."""
    queue = emulator.client.get_queue(name=emulator.queue())
    assert queue.state == State.RUNNING
    assert queue.rate_limits.max_dispatches_per_second == 500
    assert queue.rate_limits.max_concurrent_dispatches == 1000
    assert queue.retry_config.max_attempts == 100
    assert queue.retry_config.max_doublings == 16
    assert queue.retry_config.min_backoff.total_seconds() == pytest.approx(0.1)
    assert queue.retry_config.max_backoff.total_seconds() == 3600


def test_a_queue_keeps_the_settings_it_was_created_with(emulator):
    name = emulator.queue(
        {"max_dispatches_per_second": 20, "max_concurrent_dispatches": 10},
        {"max_attempts": -1, "min_backoff": {"seconds": 5}, "max_backoff": {"seconds": 600}, "max_doublings": 5},
    )
    queue = emulator.client.get_queue(name=name)
    assert queue.rate_limits.max_dispatches_per_second == 20
    assert queue.rate_limits.max_concurrent_dispatches == 10
    assert queue.retry_config.max_attempts == -1
    assert queue.retry_config.max_doublings == 5


def test_the_burst_size_is_output_only_and_follows_the_rate(emulator):
    """RateLimits.max_burst_size: "Output only"."""
    name = emulator.queue({"max_dispatches_per_second": 20, "max_burst_size": 4000})
    assert emulator.client.get_queue(name=name).rate_limits.max_burst_size == 20


@pytest.mark.parametrize(
    ("rate", "retry"),
    [
        ({"max_dispatches_per_second": 500.5}, {}),  # "The maximum allowed value is 500"
        ({"max_dispatches_per_second": -1}, {}),
        ({"max_concurrent_dispatches": 5001}, {}),  # "The maximum allowed value is 5,000"
        ({}, {"max_attempts": -2}),  # "Must be greater than or equal to -1"
        ({}, {"max_doublings": -1}),
        ({}, {"min_backoff": {"seconds": 10}, "max_backoff": {"seconds": 5}}),
        ({}, {"min_backoff": {"seconds": -1}}),
    ],
)
def test_a_setting_outside_its_range_is_an_invalid_argument(emulator, rate, retry):
    """RateLimits and RetryConfig, types/queue.py."""
    with pytest.raises(exceptions.InvalidArgument):
        emulator.queue(rate, retry)


@pytest.mark.parametrize("queue_id", ["under_score", "a" * 101, "", "dot.ted", "slash/ed"])
def test_a_malformed_queue_name_is_an_invalid_argument(emulator, queue_id):
    """Queue.name: letters, numbers and hyphens, at most 100; the sentence is recorded."""
    with pytest.raises(exceptions.InvalidArgument, match="Queue name must be formatted"):
        emulator.client.create_queue(parent=LOCATION, queue=tasks_v2.Queue(name=f"{LOCATION}/queues/{queue_id}"))


def test_a_queue_must_be_under_the_parent_of_the_request(emulator):
    with pytest.raises(exceptions.InvalidArgument):
        emulator.client.create_queue(
            parent="projects/pombo-local/locations/elsewhere", queue=tasks_v2.Queue(name=f"{LOCATION}/queues/q")
        )


def test_a_queue_that_exists_is_not_created_again(emulator):
    """Recorded: ALREADY_EXISTS."""
    name = emulator.queue()
    with pytest.raises(exceptions.AlreadyExists, match="Queue already exists"):
        emulator.client.create_queue(parent=LOCATION, queue=tasks_v2.Queue(name=name))


@pytest.mark.parametrize("call", ["get_queue", "pause_queue", "resume_queue", "purge_queue"])
def test_unknown_queue_is_not_found(emulator, call):
    """Recorded: NOT_FOUND, with this sentence."""
    with pytest.raises(exceptions.NotFound, match=r"Queue does not exist\. If you just created the queue"):
        getattr(emulator.client, call)(name=f"{LOCATION}/queues/never-was")


def test_deleting_an_unknown_queue_is_not_found(emulator):
    """Recorded: another sentence than the other calls'."""
    with pytest.raises(exceptions.NotFound, match="Requested entity was not found"):
        emulator.client.delete_queue(name=f"{LOCATION}/queues/never-was")


def test_deleted_queue_loses_its_tasks_and_its_name_is_refused(emulator):
    """DeleteQueue: "even if it has tasks in it"; recorded: FAILED_PRECONDITION on creating it again."""
    name = emulator.paused_queue()
    emulator.create(name)
    emulator.client.delete_queue(name=name)
    with pytest.raises(exceptions.NotFound):
        emulator.client.get_queue(name=name)
    with pytest.raises(exceptions.NotFound):
        emulator.create(name)
    with pytest.raises(exceptions.FailedPrecondition, match="existed too recently"):
        emulator.client.create_queue(parent=LOCATION, queue=tasks_v2.Queue(name=name))
    with pytest.raises(exceptions.FailedPrecondition):
        emulator.client.update_queue(queue=tasks_v2.Queue(name=name))


def test_a_deleted_queues_name_is_free_again_after_seven_days(tmp_path):
    """https://cloud.google.com/tasks/docs/deleting-appengine-queues-and-tasks; the time is moved in the file."""
    with Emulator(tmp_path) as emulator:
        name = emulator.queue()
        emulator.client.delete_queue(name=name)
        emulator.stop()
        with closing(sqlite3.connect(tmp_path / "tasks.sqlite")) as db, db:
            db.execute("UPDATE deleted_queues SET free_at = free_at - 7 * 24 * 3600")
        emulator.start()
        emulator.client.create_queue(parent=LOCATION, queue=tasks_v2.Queue(name=name))


def test_queues_are_listed_in_order_page_by_page(emulator):
    """ListQueues: "returned in lexicographical order"; the client follows next_page_token by itself."""
    parent = f"projects/p-{uuid.uuid4().hex[:8]}/locations/local"
    for queue_id in ("c", "a", "b", "d", "e"):
        emulator.client.create_queue(parent=parent, queue=tasks_v2.Queue(name=f"{parent}/queues/{queue_id}"))
    pages = list(emulator.client.list_queues(request={"parent": parent, "page_size": 2}).pages)
    ids = [[queue.name.rpartition("/")[2] for queue in page.queues] for page in pages]
    assert ids == [["a", "b"], ["c", "d"], ["e"]]


def test_a_page_token_that_was_never_given_is_an_invalid_argument(emulator):
    with pytest.raises(exceptions.InvalidArgument):
        emulator.client.list_queues(request={"parent": LOCATION, "page_token": "%%%"})


def test_an_update_changes_the_fields_of_its_mask_and_no_other(emulator):
    """UpdateQueueRequest.update_mask."""
    name = emulator.queue({"max_dispatches_per_second": 20}, {"max_attempts": 7, "max_doublings": 5})
    queue = tasks_v2.Queue(
        name=name, rate_limits={"max_dispatches_per_second": 50}, retry_config={"max_attempts": 3, "max_doublings": 0}
    )
    mask = FieldMask(paths=["rate_limits.max_dispatches_per_second", "retry_config.max_doublings"])
    updated = emulator.client.update_queue(queue=queue, update_mask=mask)
    assert updated == emulator.client.get_queue(name=name)
    assert updated.rate_limits.max_dispatches_per_second == 50
    assert updated.rate_limits.max_burst_size == 50
    assert updated.retry_config.max_doublings == 0
    assert updated.retry_config.max_attempts == 7


def test_an_update_without_a_mask_changes_every_field(emulator):
    """UpdateQueueRequest.update_mask: "If empty, then all fields will be updated"."""
    name = emulator.queue({"max_dispatches_per_second": 20}, {"max_attempts": 7})
    updated = emulator.client.update_queue(queue=tasks_v2.Queue(name=name, retry_config={"max_attempts": 3}))
    assert updated.retry_config.max_attempts == 3
    assert updated.rate_limits.max_dispatches_per_second == 500


def test_an_update_leaves_the_state_and_other_output_only_fields_alone(emulator):
    """Queue.state: "UpdateQueue cannot be used to change state"; UpdateQueueRequest: such values are ignored."""
    name = emulator.paused_queue()
    queue = tasks_v2.Queue(name=name, state=State.RUNNING)
    assert emulator.client.update_queue(queue=queue).state == State.PAUSED
    assert emulator.client.update_queue(queue=queue, update_mask=FieldMask(paths=["state"])).state == State.PAUSED


@pytest.mark.parametrize("path", ["name", "nonsense", "retry_config.nonsense"])
def test_a_mask_that_names_no_updatable_field_is_an_invalid_argument(emulator, path):
    with pytest.raises(exceptions.InvalidArgument):
        emulator.client.update_queue(queue=tasks_v2.Queue(name=emulator.queue()), update_mask=FieldMask(paths=[path]))


def test_an_update_creates_a_queue_that_does_not_exist(emulator):
    """UpdateQueue: "creates the queue if it does not exist"."""
    name = f"{LOCATION}/queues/q-{uuid.uuid4().hex[:12]}"
    emulator.client.update_queue(queue=tasks_v2.Queue(name=name, retry_config={"max_attempts": 4}))
    assert emulator.client.get_queue(name=name).retry_config.max_attempts == 4


def test_pausing_and_resuming_change_the_state(emulator):
    """PauseQueue, ResumeQueue."""
    name = emulator.queue()
    assert emulator.client.pause_queue(name=name).state == State.PAUSED
    assert emulator.client.get_queue(name=name).state == State.PAUSED
    assert emulator.client.resume_queue(name=name).state == State.RUNNING


def test_a_purge_deletes_every_task_sets_the_purge_time_and_keeps_the_names(emulator):
    """PurgeQueue; Queue.purge_time; CreateTaskRequest: ids of deleted tasks are not free at once."""
    name = emulator.paused_queue()
    for number in range(3):
        emulator.create(name, task_id=f"t{number}")
    queue = emulator.client.purge_queue(name=name)
    assert queue.purge_time.timestamp() > 0
    assert list(emulator.client.list_tasks(parent=name)) == []
    with pytest.raises(exceptions.AlreadyExists):
        emulator.create(name, task_id="t1")
    emulator.create(name, task_id="t3")


def test_unsupported_feature_is_refused_and_not_ignored(emulator):
    """docs/decisions/0005: App Engine, IAM and batches."""
    queue = tasks_v2.Queue(name=f"{LOCATION}/queues/q", app_engine_routing_override={"service": "default"})
    with pytest.raises(exceptions.MethodNotImplemented):
        emulator.client.create_queue(parent=LOCATION, queue=queue)
    with pytest.raises(exceptions.MethodNotImplemented):
        emulator.client.list_queues(request={"parent": LOCATION, "filter": "state: PAUSED"})
    with pytest.raises(exceptions.MethodNotImplemented):
        emulator.client.get_iam_policy(request={"resource": f"{LOCATION}/queues/q"})
    with pytest.raises(exceptions.MethodNotImplemented):
        emulator.client.batch_delete_tasks(request={"parent": f"{LOCATION}/queues/q"})
