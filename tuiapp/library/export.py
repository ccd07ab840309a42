"""Writes a run's figures for other programs, as a file or a directory that is complete or absent: see `exporters`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tuiapp.library.exporters import EXPORTERS, NO_METRICS, What, names_of
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.snapshot import read_run
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.view.run_values import known_values


class ExportError(Exception):
    """Nothing was written; the message gives the reason and what to do."""


def check_target(path: Path, form: str, what: What = "metrics", *, force: bool) -> None:
    """Raises `ExportError` if the format cannot be written here, or cannot be written to `path`.

    A file has no other format's name, and does not exist (without `force`); a directory does not exist, or has nothing
    but such an export (with `force`).
    """
    exporter = EXPORTERS[form]
    if exporter.package and importlib.util.find_spec(exporter.package) is None:
        raise ExportError(f"The format {form} needs {exporter.package}, which is not installed: {exporter.install}")
    if exporter.is_directory and what in NO_METRICS:
        files = names_of(directories=False)
        raise ExportError(f"{form} holds metrics, no {what}: choose {', '.join(files[:-1])} or {files[-1]} for those.")
    if not exporter.is_directory and path.suffix and path.suffix.lower() != exporter.suffix:
        formats = ", ".join(EXPORTERS)
        raise ExportError(f"{path.name} must end in {exporter.suffix}, the chosen format. Formats: {formats}.")
    try:
        status = path.stat()
    except OSError:
        if not os.path.isdir(path.parent):
            raise ExportError(f"The directory {path.parent} does not exist.") from None
        return
    if exporter.is_directory:
        if not stat.S_ISDIR(status.st_mode):
            raise ExportError(f"{path} is not a directory, as {form} needs.")
    elif not stat.S_ISREG(status.st_mode):
        raise ExportError(f"{path} is not a regular file.")
    if not force:
        raise ExportError(exists(path))
    if exporter.is_directory and (other := other_file(path, exporter.mark)):
        raise ExportError(f"{path} has other files than an export, such as {other}: choose another name.")


def exists(path: Path) -> str:
    """Says that a path exists."""
    return f"{path} exists. Choose another name, or overwrite it (--force)."


def other_file(directory: Path, mark: str) -> Path | None:
    """Returns a file below a directory without `mark` in its path from there; None if there is none."""
    for root, _, names in os.walk(directory):
        for name in names:
            if mark not in os.path.join(os.path.relpath(root, directory), name):
                return Path(root, name)
    return None


def export_to(path: Path, run: RunDir, what: What, form: str, *, force: bool = False) -> int:
    """Writes a run's figures to a file or directory, atomically; returns the number of rows, or of steps of ranks.

    Raises `ExportError` if it cannot.
    """
    check_target(path, form, what, force=force)
    with put_in_place(path, force=force) as temporary:
        try:
            return EXPORTERS[form].write(temporary, run, what)
        except (OverflowError, ValueError) as error:
            # A damaged journal may have numbers that no column holds.
            raise ExportError(f"Cannot write {path}: {error}.") from error


@contextlib.contextmanager
def put_in_place(path: Path, *, force: bool) -> Iterator[Path]:
    """Puts the file or directory that is written to the path given in the place of `path`, complete or not at all.

    With `force` it takes the place of an earlier one, which is removed. Raises `ExportError` if there is one (without
    `force`), or if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
        if os.path.isdir(temporary):
            _rename_directory(temporary, target, force=force)
        else:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            _rename_file(temporary, target, force=force)
    except FileExistsError:
        raise ExportError(exists(path)) from None
    except OSError as error:
        raise ExportError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink()


def _rename_directory(temporary: Path, target: Path, *, force: bool) -> None:
    earlier = temporary.with_name(f"{temporary.name}.earlier")
    if force:
        with contextlib.suppress(FileNotFoundError):
            os.rename(target, earlier)
    elif os.path.exists(target):
        raise FileExistsError(target)
    os.rename(temporary, target)
    shutil.rmtree(earlier, ignore_errors=True)


def _rename_file(temporary: Path, target: Path, *, force: bool) -> None:
    if not force:
        try:
            # Unlike a rename, a link does not overwrite a file created meanwhile.
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:
            # A file system without links.
            if os.path.exists(target):
                raise FileExistsError(target) from None
        else:
            return
    os.replace(temporary, target)


def with_facts(info: RunInfo) -> RunInfo:
    """Completes what a script says of its run, of which a summary reads only the ends of the journal."""
    if not info.is_readable or (info.config is not None and BACKENDS[info.config.backend].builtin):
        return info
    return replace(info, facts=read_run(info.directory).facts)


def config_of(run: RunDir) -> dict[str, object]:
    """Returns a run's configuration: the keys that it uses, and what its script says of it."""
    return known_values(with_facts(summarise(run)))
