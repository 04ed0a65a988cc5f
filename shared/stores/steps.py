"""The step once it is stored, in every store."""

from dataclasses import replace

from shared.domain.delivery.answers import Ensure, EnsureReplies, Run, Step


def written(step: Step, version: int | None) -> Step:
    """The step once its record is stored. Its record may be the `seen` of the next change."""
    if step.write is None:
        return step
    record = replace(step.write, version=version)
    follows = step.next
    if isinstance(follows, Ensure | EnsureReplies | Run) and follows.record.key == record.key:
        follows = replace(follows, record=record)
    return replace(step, write=record, next=follows)
