"""The worker of the API service: it answers what is not HTTP as the service answers any other fault."""

from http import HTTPStatus

from services.api.problems import CONTENT_TYPE, INVALID_REQUEST, STATUS, UNEXPECTED, Problem, document
from services.bounded_worker import BoundedWorker
from services.serving import refusal


class ApiWorker(BoundedWorker):
    """Refuses with a problem document."""

    @staticmethod
    def refused(status: HTTPStatus) -> bytes:
        """A status of 400, or 500 if the fault is ours. What is wrong with the HTTP matters to no program."""
        is_theirs = status < HTTPStatus.INTERNAL_SERVER_ERROR
        problem = Problem(INVALID_REQUEST, "The request is not valid HTTP.") if is_theirs else Problem(UNEXPECTED)
        return refusal(STATUS[problem.code], document(problem), CONTENT_TYPE)
