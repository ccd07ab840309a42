"""`tuiapp note`, `export`, `report`, `compact` and `rm`: what is done with the records of runs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuiapp.actions import annotate, compact, delete, export
from tuiapp.actions.action import Outcome
from tuiapp.library.export import ExportError
from tuiapp.library.exporters import EXPORTERS, What, names_of
from tuiapp.library.find import titled
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import MAX_FILE_BYTES, Change, read_about
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import format_bytes, join_words, plural, sanitize
from tuiapp.verbs.output import UsageError, print_outcome, tell
from tuiapp.verbs.sources import runs_of


def change_note(options: Namespace) -> int:
    """Makes the changes given, or else opens the note in the user's editor; prints what the runs are called now."""
    runs = runs_of(options)
    for damaged in annotate.in_common(runs)[1]:
        tell(damaged)
    change = Change(
        name=options.name,
        note=options.note,
        group=options.group,
        tags=tuple(options.tags),
        untags=tuple(options.untags),
    )
    edits = change == Change() and not options.accept
    if len(runs) > 1 and (edits or options.name):
        raise UsageError(f"A name and an editor are for one run, and these are {len(runs)}: give --tag, --group or -m.")
    if edits:
        change = Change(note=_edited(runs[0]))
    for run in annotate.do(runs, change, accepts=options.accept).done:
        about, _ = read_about(run)
        group = f"group {about.group}" if about.group else ""
        note = f"a note of {plural(len(about.note), 'character')}" if about.note else ""
        print(sanitize(join_words([titled(run), group, ", ".join(about.tags), note])), file=sys.stderr)
    return 0


def _edited(run: RunDir) -> str:
    """Returns the run's note, as the user leaves it in an editor; raises UsageError if there is none, or it fails."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("Give the note with -m TEXT, or set EDITOR to the program that is to edit it.")
    with tempfile.TemporaryDirectory(prefix="tuiapp-") as directory:
        file = Path(directory) / "note.md"
        file.write_text(read_about(run)[0].note, encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
            with open(file, "rb") as written:
                text = written.read(MAX_FILE_BYTES).decode(errors="replace")
        except (OSError, ValueError) as error:
            raise UsageError(f"The editor {editor!r} cannot be used: {error}.") from error
    if code:
        raise UsageError(f"The editor {editor!r} ended with {code}: the note is unchanged.")
    return text


def export_run(options: Namespace) -> int:
    """Writes the figures to a file or directory, of one run to stdout, too."""
    runs = runs_of(options)
    if options.output not in (None, "-"):
        path = Path(os.path.expanduser(options.output))
        form = options.format or ("csv" if len(runs) > 1 else _format_of(path))
        what: What = options.what or ("metrics" if EXPORTERS[form].is_directory else "steps")
        return print_outcome(export.do(runs, path, what, form, force=options.force))
    exporter, what, outcome = EXPORTERS[options.format or "csv"], options.what or "steps", Outcome()
    if len(runs) > 1:
        raise ExportError(f"{len(runs)} runs are not written to stdout: give -o DIR.")
    export.check(runs[0])
    if not exporter.is_text:
        where = "DIR" if exporter.is_directory else "FILE"
        raise ExportError(f"{exporter.name} is not written to stdout: give -o {where}.")
    export.say_missing(outcome, runs[0], what, exporter.print(runs[0], what))
    return print_outcome(outcome)


def _format_of(path: Path) -> str:
    suffix = path.suffix.lower() or ".csv"
    for exporter in EXPORTERS.values():
        if exporter.suffix == suffix:
            return exporter.name
    *most, last = [EXPORTERS[name].suffix for name in names_of(directories=False)]
    raise ExportError(
        f"{path.name}: unknown format {suffix!r}; end the name in {', '.join(most)} or {last}, or give --format."
    )


def report_runs(options: Namespace) -> int:
    """Writes the page, and for Markdown its figures."""
    # With NumPy.
    from tuiapp.actions import report

    path = Path(os.path.expanduser(options.output))
    return print_outcome(report.do(runs_of(options), path, force=options.force))


def remove_runs(options: Namespace) -> int:
    """Deletes all of the runs or, where one has not ended, none; asks on a terminal."""
    runs = runs_of(options)
    delete.check(runs)
    if not options.yes and not agreed(runs, delete.question([summarise(run) for run in runs]).title):
        return 0
    return print_outcome(delete.do(runs))


def compact_runs(options: Namespace) -> int:
    """Compacts the journals of those of the runs that have ended; asks on a terminal."""
    runs = runs_of(options)
    title, left, _ = compact.question(runs)
    if not options.yes and not agreed(runs, f"{left}\n{title}"):
        return 0
    return print_outcome(compact.do(runs))


def agreed(runs: Sequence[RunDir], question: str) -> bool:
    """Asks on the terminal, below a line for each run; tells a refusal. Raises UsageError without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Cannot ask for confirmation without a terminal. To do without it: --yes.")
    for run in runs:
        print(f"  {join_words([delete.described(summarise(run)), _size(run)])}", file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    yes = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not yes:
        print("nothing was done", file=sys.stderr)
    return yes


def _size(run: RunDir) -> str:
    total = 0
    for file in run.path.rglob("*"):
        with suppress(OSError):
            total += file.lstat().st_size
    return format_bytes(total)
