"""Spelling: one letter wrong, missing or extra, or two letters swapped."""

import pytest

from shared.domain.spelling import is_nearly


@pytest.mark.parametrize(
    "written", ["STORE", "STORR", "XTORE", "STOR", "TORE", "SSTORE", "STORES", "STOORE", "TSORE", "STOER", "SROTE"]
)
def test_one_mistake_is_nearly_the_name(written: str) -> None:
    """Also two letters swapped that do not stand side by side, if what is between them reads the same backwards."""
    assert is_nearly(written, "STORE") is True
    assert is_nearly("STORE", written) is True


@pytest.mark.parametrize("written", ["XTORX", "STO", "STOREES", "ETORS", "SXXRE", "ROTSE", ""])
def test_two_mistakes_are_another_name(written: str) -> None:
    assert is_nearly(written, "STORE") is False
    assert is_nearly("STORE", written) is False
