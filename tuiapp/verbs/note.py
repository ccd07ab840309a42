"""`tuiapp note`: changes runs' name, group, tags and note, live or ended."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from tuiapp.actions import annotate
from tuiapp.library.find import titled
from tuiapp.trainers.contract.about import MAX_FILE_BYTES, About, Change, read_about
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.text import join_words, plural, sanitize
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.output import tell
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
    if len(runs) > 1 and options.name:
        raise UsageError(f"--name names one run, and these are {len(runs)}: give them a --group or --tag.")
    if change == Change() and not options.accept:
        if len(runs) > 1:
            raise UsageError(f"A note is edited of one run, and these are {len(runs)}: give it with -m TEXT.")
        change = Change(note=_edited(runs[0]))
    for run in annotate.do(runs, change, accepts=options.accept).done:
        about, _ = read_about(run)
        group = f"group {about.group}" if about.group else ""
        print(sanitize(join_words([titled(run), group, ", ".join(about.tags), _length(about)])), file=sys.stderr)
    return 0


def _edited(run: RunDir) -> str:
    """The run's note, as the user leaves it in an editor; raises UsageError if there is none, or it fails."""
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


def _length(about: About) -> str:
    return f"a note of {plural(len(about.note), 'character')}" if about.note else ""
