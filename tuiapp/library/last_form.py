"""What the form held last: `tuiapp/form.json` in the user's state directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import make_private, read_limited, user_state, write_atomically
from tuiapp.trainers.config.options import shown
from tuiapp.trainers.config.run_config import OPTIONS, SCHEMA, RunConfig
from tuiapp.view.draft import to_texts

MAX_FILE_BYTES = 64 * 1024


class LastForm(msgspec.Struct, frozen=True, kw_only=True):
    """The preset that was loaded, and the texts of all keys that differ from the defaults."""

    schema: int = SCHEMA
    preset: str = ""
    """"" for the defaults, or a run's configuration."""
    changes: dict[str, str] = {}

    @property
    def texts(self) -> dict[str, str]:
        """Every key's text."""
        return {**to_texts(RunConfig()), **self.changes}


def last_form(preset: str, texts: Mapping[str, str]) -> LastForm:
    """Returns what is to be kept of a form: the keys, not what the next run has of its own."""
    kept = {key: texts[key] for key, default in to_texts(RunConfig()).items() if texts[key] != default}
    return LastForm(preset=preset, changes=kept)


def form_path() -> Path:
    """Returns the file; it may be missing."""
    return user_state() / "form.json"


def read_last_form() -> tuple[LastForm | None, str]:
    """Reads it; None if there is none, or with why if it cannot be used."""
    try:
        last = msgspec.json.decode(read_limited(form_path(), MAX_FILE_BYTES), type=LastForm)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, error.strerror or str(error)
    except (ValueError, RecursionError) as error:  # too long, not UTF-8, no JSON, or of other types
        return None, str(error)
    if last.schema != SCHEMA:
        return None, f"it is of schema {last.schema}, and this version of tuiapp reads schema {SCHEMA}"
    if unknown := next((key for key in last.changes if key not in OPTIONS), ""):
        return None, f"it has a key {shown(unknown)} that this version of tuiapp does not know"
    return last, ""


def write_last_form(last: LastForm) -> None:
    """Writes it atomically, as private as a run's configuration. Raises OSError."""
    path = form_path()
    make_private(path.parent)
    write_atomically(path, msgspec.json.encode(last))
