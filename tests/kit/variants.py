"""Of many variants of a test, those that every run of the suite takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_nightly(variants: Iterable[Any], *quick: Any) -> list[Any]:
    """The variants as parameters: all but the `quick` ones are marked nightly."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.nightly) for one in variants]
