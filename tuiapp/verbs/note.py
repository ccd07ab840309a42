"""`tuiapp note`: changes a run's name, group, tags and note, live or ended."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from tuiapp.library.find import titled
from tuiapp.trainers.contract.about import MAX_FILE_BYTES, About, Change, change_about, read_about
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import join_words, plural, sanitize
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.output import tell
from tuiapp.verbs.sources import run_of


def change_note(options: Namespace) -> int:
    """Makes the changes given, or else opens the note in the user's editor; prints what the run is called now."""
    run = run_of(options)
    _, damaged = read_about(run)
    if damaged:
        tell(damaged)
    change = Change(
        name=options.name,
        note=options.note,
        group=options.group,
        tags=tuple(options.tags),
        untags=tuple(options.untags),
        accepted=tuple(one.kind for one in summarise(run).blemishes) if options.accept else (),
    )
    edits = change == Change() and not options.accept
    about = change_about(run, Change(note=_edited(run)) if edits else change)
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
