"""Of many variants of a test, those that every run of the suite takes, or every night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_nightly(variants: Iterable[Any], *everyday: Any) -> list[Any]:
    """The variants as parameters: all but the `everyday` ones are marked nightly."""
    return [one if one in everyday else pytest.param(one, marks=pytest.mark.nightly) for one in variants]


def mostly_by_hand(variants: Iterable[Any], *nightly: Any) -> list[Any]:
    """The variants as parameters, of a test that is nightly: all but the `nightly` ones are marked by_hand."""
    return [one if one in nightly else pytest.param(one, marks=pytest.mark.by_hand) for one in variants]
