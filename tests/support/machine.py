"""What a machine may lack."""

import os
from typing import NoReturn

import pytest


def missing(sentence: str) -> NoReturn:
    """Skip the test for want of what the sentence names; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)
