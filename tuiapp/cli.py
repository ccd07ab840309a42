"""The command line: what the verbs and their options are. What they do is in `tuiapp.verbs`.

stdout is data, stderr is narration. Exit codes: 0 completed, 1 run failed, 2 usage or configuration, 3 stopped on
request, 130 interrupted; `doctor`: 0, 1, 2 for pass, warn, fail.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tuiapp import __version__

USAGE_ERROR = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Those after the program's name; by default the process's own.

    Returns:
        The exit code.
    """
    from trainers.contract.options import ConfigError
    from trainers.contract.presets import PresetError
    from trainers.contract.runs import UnknownRunError
    from trainers.launch import LaunchError
    from tuiapp.state.text import sanitize
    from tuiapp.verbs.facts import UsageError

    _stand_in_for_closed_streams()
    options = build_parser().parse_args(arguments)
    module, _, function = options.does.partition(":")
    try:
        code: int = getattr(importlib.import_module(f"tuiapp.verbs.{module}"), function)(options)
        sys.stdout.flush()
    except (ConfigError, PresetError, UnknownRunError, LaunchError, UsageError) as error:
        for line in str(error).splitlines():
            print(f"tuiapp: {sanitize(line)}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output (`tuiapp runs | head`) has enough. Nothing more may be written at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _stand_in_for_closed_streams() -> None:
    """Put the null device where the shell closed a standard stream (`>&-`): Python leaves None there."""
    # They are for the whole process: nothing could close them earlier.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="tuiapp",
        description="Configure, launch and watch multi-device training. Without a verb: the dashboard.",
        epilog="RUN is an id, a unique prefix of one, `latest`, or a directory.",
    )
    parser.add_argument("--version", action="version", version=f"tuiapp {__version__}")
    _runs_dir(parser)
    parser.set_defaults(does="dashboard:open_dashboard", run=None)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    _add_run(verbs)
    _add_watching(verbs)
    _add_presets(verbs)
    doctor = verbs.add_parser("doctor", help="say what can run here, and what is in the way")
    _json(doctor)
    _runs_dir(doctor, again=True)
    doctor.set_defaults(does="doctor:examine")
    return parser


def _add_run(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = verbs.add_parser("run", help="launch a run, or resume one, and report on it until it ends")
    run.add_argument("source", nargs="?", metavar="PRESET|FILE", help="where its configuration starts from")
    run.add_argument("--resume", metavar="RUN", help="go on with that run from its newest checkpoint that is whole")
    _set(run)
    run.add_argument("--detach", action="store_true", help="do not wait for the end; print the run's id")
    _json(run)
    _runs_dir(run, again=True)
    run.set_defaults(does="run:launch_run")


def _add_watching(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    attach = verbs.add_parser("attach", help="watch a run in the dashboard, from its first step")
    attach.add_argument("run", nargs="?", default="latest", metavar="RUN", help="by default the latest")
    _runs_dir(attach, again=True)
    attach.set_defaults(does="dashboard:open_dashboard")

    stop = verbs.add_parser("stop", help="stop a run, all its ranks after the same step, with a checkpoint")
    stop.add_argument("run", metavar="RUN")
    stop.add_argument("--now", action="store_true", help="do not wait for the step under way, nor save a checkpoint")
    _runs_dir(stop, again=True)
    stop.set_defaults(does="control:stop_run")

    checkpoint = verbs.add_parser("checkpoint", help="have a run save a checkpoint now; print its directory")
    checkpoint.add_argument("run", metavar="RUN")
    _runs_dir(checkpoint, again=True)
    checkpoint.set_defaults(does="control:save_checkpoint")

    runs = verbs.add_parser("runs", help="list the runs, newest first")
    _json(runs)
    _runs_dir(runs, again=True)
    runs.set_defaults(does="runs:list_all")

    show = verbs.add_parser("show", help="show a run: configuration, result, checkpoints, first failure")
    show.add_argument("run", metavar="RUN")
    _json(show)
    _runs_dir(show, again=True)
    show.set_defaults(does="runs:show_run")


def _add_presets(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    presets = verbs.add_parser("presets", help="list, show, save, rename or delete presets")
    presets.set_defaults(does="presets:list_all", json=False)
    actions = presets.add_subparsers(title="actions", metavar="ACTION")
    listing = actions.add_parser("list", help="list them (the default)")
    _json(listing)
    listing.set_defaults(does="presets:list_all")
    show = actions.add_parser("show", help="print one as a configuration file")
    show.add_argument("name", metavar="PRESET")
    show.set_defaults(does="presets:show")
    save = actions.add_parser("save", help="save a configuration under a name")
    save.add_argument("name", metavar="NAME")
    save.add_argument("source", nargs="?", metavar="PRESET|FILE", help="where it starts from; by default the defaults")
    _set(save)
    save.add_argument("--description", default="", metavar="TEXT", help="one line that the list shows")
    save.add_argument("--force", action="store_true", help="overwrite a preset of that name")
    save.set_defaults(does="presets:save")
    rename = actions.add_parser("rename", help="give one of yours another name")
    rename.add_argument("name", metavar="PRESET")
    rename.add_argument("new_name", metavar="NAME")
    rename.set_defaults(does="presets:rename")
    delete = actions.add_parser("delete", help="delete one of yours")
    delete.add_argument("name", metavar="PRESET")
    delete.set_defaults(does="presets:delete")
    path = actions.add_parser("path", help="print the directory of yours")
    path.set_defaults(does="presets:path")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="change a key; may be repeated"
    )


def _runs_dir(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    # Given before the verb or after it; a verb's own default must not undo what stood before.
    parser.add_argument(
        "--runs-dir",
        type=_directory,
        default=argparse.SUPPRESS if again else None,
        metavar="DIR",
        help="where runs are kept (TUIAPP_RUNS_DIR)",
    )


def _directory(text: str) -> Path:
    if not text:
        # What `--runs-dir "$UNSET"` gives: it must not mean the directory one stands in.
        raise argparse.ArgumentTypeError("it is empty; write . for the directory you are in.")
    return Path(os.path.expanduser(text)).absolute()
