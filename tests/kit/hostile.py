"""Text that would take over a terminal, put into every text of every event and file that a view shows."""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.specimens import specimens
from tuiapp.library.presets import presets_dir
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Event
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.manifest import Manifest, StoredFile
from tuiapp.trainers.contract.rundir import RunDir

HOSTILE = (
    "[bold red]A[/] [/] [@click=app.quit]B[/] \x1b]52;c;SEFDSw==\x07\x1b]0;HACKED\x1b\\\x1bPHACKED\x1b\\\x1b[2J"
    "\x1b[?1049l"
    "\x9b31m\x9d0;HACKED\x9c\x90HACKED\x9c\x07\x08\x7f\u202e\u2066\u200b\udcff \r\n\tC $(D)"
)
WIRE = HOSTILE.replace("\udcff", "")
"""What JSON and TOML can hold of it."""

RUN_IDS = (
    "20261120T101500-torch-ddp-net-3fa1",
    "20261120T101400-torch-ddp-net-3fa2",
    "20261120T101300-torch-ddp-net-3fa3",
)

_HARM = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff]")


def harm_in(text: str) -> str:
    """The first thing in a text that is more than characters, with what stands around it; "" for none."""
    found = _HARM.search(text)
    return repr(text[max(0, found.start() - 60) : found.end() + 60]) if found else ""


def poison(event: Event) -> AnyEvent:
    """The event with all its free texts hostile."""
    poisoned: AnyEvent = _poison(event, type(event))
    return poisoned


def _poison(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if value is None or origin is Literal:
        return value
    if origin in (Union, types.UnionType):
        return _poison(value, arguments[0])
    if origin in (list, tuple):
        return type(value)(_poison(item, arguments[0]) for item in value)
    if origin is dict:
        kept = arguments[1] is object or arguments[0] is int
        return {key if kept else WIRE: _poison(item, arguments[1]) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = get_type_hints(type(value))
        fields = {field.name for field in msgspec.structs.fields(value)}
        return type(value)(**{name: _poison(getattr(value, name), hints[name]) for name in fields})
    return WIRE if isinstance(value, str) else value


def write_runs(runs_dir: Path) -> list[RunDir]:
    """Runs whose every text is hostile: one completed, one failed, one that holds an event of every type."""
    histories: Sequence[list[AnyEvent]] = (h.completed(), interrupted.failed(), [*h.running(), *specimens()])
    return [_write(RunDir(runs_dir / name), events) for name, events in zip(RUN_IDS, histories, strict=True)]


def _write(run: RunDir, events: list[AnyEvent]) -> RunDir:
    import tomlkit

    run.rank(0).mkdir(parents=True)
    run.commands.mkdir()
    values = to_toml_values(RunConfig(platform="cpu", devices=2))
    # The first can be read but for its data set; the others say what is wrong with them.
    values["dataset"] = f"npz:/tmp/{'[red]x[/]' if run.run_id == RUN_IDS[0] else WIRE}"
    values["device_ids"] = [] if run.run_id == RUN_IDS[0] else [WIRE]
    run.config.write_text(tomlkit.dumps({"schema": 1, **values, **({WIRE: WIRE} if run.run_id == RUN_IDS[1] else {})}))
    journal = JournalWriter(run.journal)
    journal.append([poison(event) for event in events])
    journal.close()
    run.environment.write_bytes(msgspec.json.encode(dict.fromkeys(("host", "git_commit", "command_line"), WIRE)))
    for file in (run.supervisor_log, run.rank(0) / "stdout.log", run.rank(0) / "stderr.log"):
        file.write_text(WIRE)
    _write_checkpoint(run, 36, {"model.safetensors": StoredFile(bytes=3, sha256="x")})
    _write_checkpoint(run, 72, {WIRE: StoredFile(bytes=3, sha256=WIRE)})
    broken = run.checkpoints / "step-00000099"
    broken.mkdir()
    (broken / "manifest.json").write_bytes(msgspec.json.encode({"schema": WIRE, WIRE: 1}))
    return run


def _write_checkpoint(run: RunDir, step: int, files: dict[str, StoredFile]) -> None:
    directory = run.checkpoints / f"step-{step:08}"
    directory.mkdir(parents=True)
    manifest = Manifest(
        **dict.fromkeys(("run_id", "backend", "model", "dataset", "optimizer"), WIRE),  # type: ignore[arg-type]
        classes=10,
        input_shape=(8, 8, 1),
        seed=0,
        global_batch_size=48,
        devices=2,
        step=step,
        epoch=1.0,
        accuracy=0.5,
        files=files,
    )
    (directory / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def write_presets() -> None:
    """A preset with a hostile description, one with a hostile value, one with a hostile name."""
    import tomlkit

    presets_dir().mkdir(parents=True, exist_ok=True)
    for name, table in {
        "described": {"description": WIRE},
        "wrong": {"optimizer": WIRE, WIRE: WIRE},
        "\x1b]0;HACKED\x07[red]n": {"description": "x"},
    }.items():
        (presets_dir() / f"{name}.toml").write_text(tomlkit.dumps(table))
