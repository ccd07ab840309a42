"""What a check has found: written as it is found, so that a check that hangs or dies has told what came before."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class SkipCheck(Exception):
    """What a check needs is not here; the message says what."""


@dataclass(frozen=True)
class Findings:
    """Appends to a file, a JSON object a line: `what`, `seen`, `wanted` and `ok`, which is null for a mere remark."""

    path: Path

    def holds(self, what: str, ok: object, seen: object = "") -> None:
        self._add(what, str(seen), "", bool(ok))

    def at_least(self, what: str, value: float | None, least: float, form: str = ".3g") -> None:
        self._add(what, _number(value, form), f"≥ {least:{form}}", value is not None and value >= least)

    def at_most(self, what: str, value: float | None, most: float, form: str = ".3g") -> None:
        """A value that is not a number fails, as a missing one does."""
        self._add(what, _number(value, form), f"≤ {most:{form}}", value is not None and value <= most)

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """A part of a check that may raise: it has failed then, and the next part begins."""
        try:
            yield
        except SkipCheck:
            raise
        except Exception:
            self.holds(what, False, traceback.format_exc())

    def note(self, what: str, seen: object = "") -> None:
        self._add(what, str(seen), "", None)

    def _add(self, what: str, seen: str, wanted: str, ok: bool | None) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"what": what, "seen": seen, "wanted": wanted, "ok": ok}) + "\n")


def _number(value: float | None, form: str) -> str:
    return "nothing" if value is None else f"{value:{form}}"
