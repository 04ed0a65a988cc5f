"""Mutations of what the platform keeps, costs and is reached by: a plan with one thing wrong."""

from mutations import Mutation, put
from rules_logging import EXCLUSION

OF_LOGS = (
    Mutation("handshakes are logged", EXCLUSION, "handshake", None, "keeps the verify token"),
    Mutation("an exclusion that is off", EXCLUSION, "handshake", put(True, "disabled"), "keeps the verify token"),
    Mutation(
        "an exclusion of the plain spelling",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"hub.verify_token"', "filter"),
        "keeps the verify token",
    ),
    Mutation(
        "an exclusion of two encoded characters",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"(?i)hub([.]|%2e)verify(_|%5f)token"', "filter"),
        "keeps the verify token",
    ),
    Mutation(
        "an exclusion of Cloud Run alone",
        EXCLUSION,
        "handshake",
        lambda values: values.update(filter=f'resource.type="cloud_run_revision" AND {values["filter"]}'),
        "keeps the verify token",
    ),
    Mutation(
        "an exclusion of every request with a query",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"hub"', "filter"),
        "loses GET",
    ),
    Mutation(
        "an exclusion of every request",
        EXCLUSION,
        "handshake",
        put('resource.type="cloud_run_revision"', "filter"),
        "loses POST",
    ),
    Mutation(
        "an exclusion that nobody can read",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"hub.*?token"', "filter"),
        "not what we allow",
    ),
)
"""Of which log entries are kept."""

MUTATIONS = (*OF_LOGS,)
