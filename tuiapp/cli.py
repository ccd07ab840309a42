"""The command line: verbs and options; `tuiapp.verbs` implements them.

stdout is data, stderr is narration. Exit codes: 0 completed, 1 run failed, 2 usage or configuration, 3 stopped on
request, 130 interrupted; `doctor`: 0, 1, 2 for pass, warn, fail; `devices` without --watch: 1 when a driver hangs or
crashes.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tuiapp import __version__
from tuiapp.library.exporters import EXPORTERS, TABLES, names_of
from tuiapp.trainers.config.options import INTERVAL_S, INTERVAL_VARIABLE
from tuiapp.verbs import arguments
from tuiapp.verbs.arguments import Names

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

USAGE_ERROR = 2

ELSEWHERE = {
    name: command
    for command, names in {
        "runs": ("list", "ls", "ps", "history"),
        "run": ("start", "launch", "train"),
        "run --resume RUN": ("resume", "continue", "restart"),
        "attach": ("watch", "open", "log", "logs", "tail"),
        "show RUN": ("status", "info", "inspect"),
        "stop RUN": ("kill", "cancel", "abort"),
        "rm RUN": ("delete", "remove"),
        "settings": ("config",),
        "--version": ("version",),
    }.items()
    for name in names
}
"""A verb of another program, by which a user may call it → what it is called here."""
INTERRUPTED = 130
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
RUNS = "Several RUNs may be groups' names, and filters as of tuiapp runs (tag:sweep, state:failed, 'lr<0.01'), too."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, by default from the process's arguments, and returns the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        # Also during imports, which take a second on a busy machine.
        return INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    from tuiapp.verbs.output import redirect_to_devnull, tell

    _stand_in_for_closed_streams()
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    module, _, function = options.does.partition(":")
    try:
        if hasattr(options, "settings"):
            from tuiapp.verbs.sources import place_weights

            place_weights(options)
        code: int = getattr(importlib.import_module(f"tuiapp.verbs.{module}"), function)(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output (`tuiapp runs | head`) has enough.
        redirect_to_devnull(sys.stdout)
        return 0
    except OSError as error:
        if error.errno == errno.ENOENT and error.filename is None:
            tell("the working directory was removed: change to another one")
            return USAGE_ERROR
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        redirect_to_devnull(sys.stdout)
        tell(f"the output could not be written: {error.strerror}")
        return 1
    except Exception as error:
        from tuiapp.verbs.errors import FOR_THE_USER, NotStartedError

        if not isinstance(error, FOR_THE_USER):
            raise
        for line in str(error).splitlines():
            tell(line)
        return 1 if isinstance(error, NotStartedError) else USAGE_ERROR
    return code


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Parses a command; what follows `--` is a script's, whatever it looks like."""
    parser, words = build_parser(), list(words)
    end = words.index("--") if "--" in words else len(words)
    if "--slurm" in words[: end - 1]:
        # argparse takes a value that is one word and begins with a dash, as --exclusive, for an option of its own.
        index = words.index("--slurm")
        words[index : index + 2], end = [f"--slurm={words[index + 1]}"], end - 1
    if end < len(words) and {"run", "save", "add", "sweep", "scale"} & set(words[:end]):
        return parser.parse_args(words[:end], argparse.Namespace(arguments=words[end + 1 :]))
    options, unknown = parser.parse_known_args(words, argparse.Namespace(arguments=None))
    if unknown:
        options.parser.error(f"unrecognized arguments: {shlex.join(unknown)}{_hint(options, unknown)}")
    return options


def _hint(options: argparse.Namespace, unknown: Sequence[str]) -> str:
    """Returns what was meant by words that an action does not know, or ""."""
    from tuiapp.trainers.config.options import nearest

    if hint := _script_hint(options, unknown):
        return hint
    if hasattr(options, "settings"):
        from tuiapp.verbs.sources import as_setting

        if setting := as_setting(*unknown[:2]):
            return f"; to set a configuration key: {setting}"
    names = {name.lstrip("-"): name for name in options.parser._option_string_actions}
    name = nearest(unknown[0].lstrip("-"), names)
    return f". Did you mean {names[name]}?" if name else ""


def _script_hint(options: argparse.Namespace, unknown: Sequence[str]) -> str:
    """Returns what was meant, if a script's arguments or its launcher were given as in a shell; "" otherwise."""
    source, module = getattr(options, "source", None), getattr(options, "module", None)
    if module or (source and source.endswith(".py")):
        return f"; to pass them to the script, write them after --: … -- {shlex.join(unknown)}"
    script = next((word for word in unknown if word.endswith(".py")), "")
    return f"; name the script alone, without {source}: tuiapp run {shlex.quote(script)}" if source and script else ""


def _stand_in_for_closed_streams() -> None:
    """Opens the null device for standard streams that the shell closed (`>&-`), which are None in Python."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It lasts as long as the process.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name may be invalid text, a terminal's encoding may lack our symbols: neither is worth a traceback.
            stream.reconfigure(errors="backslashreplace")


class _Parser(argparse.ArgumentParser):
    """Quotes what the user typed in error messages, whatever it is; an action's own parser is in `options.parser`."""

    _is_intermixing = False

    # mypy knows three signatures of it.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Lets options stand between positional arguments."""
        # A parser with subparsers cannot; and after `--` a word that looks like an option is none.
        if self._is_intermixing or self._subparsers or "--" in (args or ()):
            options, unknown = super().parse_known_args(args, namespace)
        else:
            # It calls this method for the options, and once more for the rest.
            self._is_intermixing = True
            try:
                options, unknown = super().parse_known_intermixed_args(args, namespace)
            finally:
                self._is_intermixing = False
        if not hasattr(options, "parser"):
            options.parser = self
        return options, unknown

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        from tuiapp.trainers.state.text import sanitize

        super()._print_message("\n".join(map(sanitize, message.split("\n"))), file)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Rejects an unknown verb or choice and suggests the closest one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from tuiapp.trainers.config.options import suggest

            if action.metavar == "VERB" and value in ELSEWHERE:
                error.message += f" Did you mean 'tuiapp {ELSEWHERE[value]}'?"
            else:
                error.message += suggest(str(value), map(str, action.choices or ()))
            raise


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    parser: argparse.ArgumentParser = _Parser(
        prog="tuiapp",
        description="Configure, launch and watch multi-device training. Without a verb: the dashboard.",
        epilog=f"RUN is an id, a unique prefix of one, `latest`, a name that one run has, or a directory. {RUNS}",
    )
    parser.add_argument("--version", action="version", version=f"tuiapp {__version__}")
    _runs_dir(parser)
    parser.set_defaults(does="dashboard:open_dashboard", run=None, speed=None)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    _add_run(verbs)
    _add_watching(verbs)
    _add_records(verbs)
    _add_queue(verbs)
    _add_sweep(verbs)
    _add_study(verbs)
    _add_measured_studies(verbs)
    _add_presets(verbs)
    _add_settings(verbs)
    _add_environments(verbs)
    _add_devices(verbs)
    doctor = verbs.add_parser("doctor", help="check what can run on this machine, and what prevents the rest")
    doctor.add_argument("--end-strays", action="store_true", help="end processes of runs whose supervisor has died")
    _does(doctor, "doctor:examine", json=True)
    tools = verbs.add_parser("mcp", help="offer the runs to an assistant as tools, by MCP over stdin and stdout")
    tools.add_argument("--allow-launch", action="store_true", help="offer tools that launch, queue and stop runs, too")
    tools.add_argument("--allow-outside", action="store_true", help="take paths of runs in other directories, too")
    _does(tools, "mcp:serve_tools")
    tools.set_defaults(main=main)
    pages = verbs.add_parser("help", help="show the handbook: list its pages, print one, or search it")
    pages.add_argument(
        "words", nargs="*", metavar="TOPIC|WORD", help="a page, or words to find; default: list the pages"
    )
    pages.set_defaults(does="help:show")
    return parser


def _add_run(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = verbs.add_parser(
        "run",
        help="launch or resume a run, and report its progress until it ends",
        epilog="What follows -- are a script's own arguments: tuiapp run train.py --set devices=2 -- --epochs 5",
    )
    run.add_argument(
        "source",
        nargs="?",
        metavar="PRESET|FILE|SCRIPT",
        help="preset or configuration file to start from, or a Python script of your own (.py)",
    )
    run.add_argument("-m", dest="module", metavar="MODULE", help="run a module of your own, as python -m does")
    run.add_argument("--like", metavar="RUN", help="start a new run with that run's configuration")
    run.add_argument("--resume", metavar="RUN", help="resume that run from its newest complete checkpoint")
    _set(run)
    run.add_argument("--name", metavar="NAME", help="what to call the run; tuiapp note changes it")
    _describing(run)
    _launching(run)
    run.add_argument("--plain", action="store_true", help="print plain lines, even on a terminal")
    quiet = "print only what goes wrong, and how the run ends"
    run.add_argument("--quiet", action="store_true", help=quiet)
    strict = "exit with 1 if the run completes with a blemish, as a NaN loss, or a checkpoint that was not saved"
    run.add_argument("--strict", action="store_true", help=strict)
    run.add_argument("--queue", action="store_true", help="start it when its devices are free: see tuiapp queue")
    run.add_argument("--detach", action="store_true", help="do not wait for the run to end; print its id")
    _does(run, "run:launch_run", json=True)


def _add_watching(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    attach = verbs.add_parser("attach", help="watch a run in the dashboard, from its first step")
    attach.add_argument("run", nargs="?", default="latest", metavar="RUN", help="default: the latest")
    _does(attach, "dashboard:open_dashboard")

    replay = verbs.add_parser("replay", help="replay a run from its first step at its original pace")
    replay.add_argument("run", nargs="?", default="latest", metavar="RUN", help="default: the latest")
    replay.add_argument("--speed", type=arguments.speed, default=1.0, metavar="X", help="speed factor, 0.25 to 1024")
    _does(replay, "dashboard:open_dashboard")

    serve = verbs.add_parser("serve", help="show the dashboard in a browser on this machine")
    serve.add_argument("--port", type=arguments.port, default=8000, metavar="N", help="default 8000; 0: any free one")
    _does(serve, "serve:serve_dashboard")

    stop = verbs.add_parser("stop", help="stop runs: all ranks save a checkpoint and end after the same step")
    _runs(stop)
    stop.add_argument("--now", action="store_true", help="stop immediately, without a checkpoint")
    _does(stop, "control:stop_run", json=True)

    checkpoint = verbs.add_parser("checkpoint", help="save a checkpoint of a live run; print its directory")
    checkpoint.add_argument("run", metavar="RUN")
    _does(checkpoint, "control:save_checkpoint")

    profile = verbs.add_parser("profile", help="profile the next steps of a live run: where their time goes")
    profile.add_argument("run", nargs="?", default="latest", metavar="RUN", help="default: the latest")
    profile.add_argument("--steps", type=arguments.profile_steps, default=10, metavar="N", help="how many; default 10")
    _does(profile, "control:profile_run", json=True)

    join = verbs.add_parser("join", help="make this machine a node of a run that another has launched")
    join.add_argument("address", metavar="HOST:PORT", help="as the run's log gives it")
    join.add_argument("--secret-file", metavar="FILE", help="`secret` in the run's directory; default: asks for it")
    join.add_argument("--node", type=int, default=0, metavar="N", help="as which node, from 1; default: the first free")
    join.set_defaults(does="run:join_run")

    runs = verbs.add_parser("runs", help="list the runs, newest first")
    runs.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="only runs that match all of these: torch-ddp, failed, tag:sweep, 'lr<0.01', …",
    )
    orders = "a column, configuration key or metric (loss, accuracy, lr, eval/loss …), or best; default: newest first"
    runs.add_argument("--sort", metavar="NAME", help=orders)
    runs.add_argument("--reverse", action="store_true", help="reverse the order")
    runs.add_argument("--fold", action="store_true", help="a line per group, and per runs that differ in seed alone")
    runs.add_argument("--baseline", metavar="RUN", help="results as differences to this run's")
    runs.add_argument("--columns", metavar="A,B,…", help="only these columns: of the list, configuration keys, metrics")
    runs.add_argument("-n", "--limit", type=arguments.count, metavar="N", help="list at most N runs")
    _does(runs, "runs:list_all", json=True)

    show = verbs.add_parser("show", help="show a run: configuration, result, checkpoints, first failure")
    show.add_argument("run", metavar="RUN")
    show.add_argument("--all", action="store_true", help="a script's keys at its library's defaults, too")
    show.add_argument("--secrets", action="store_true", help="do not mask environment variables, keys and passwords")
    _does(show, "runs:show_run", json=True)


def _add_records(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    note = verbs.add_parser(
        "note",
        help="change runs' name, group, tags and note, live or ended",
        epilog="Without an option: edits the note with VISUAL or EDITOR. An empty NAME, GROUP or TEXT removes it. ",
    )
    _runs(note)
    note.add_argument("--name", metavar="NAME", help="what to call the run")
    note.add_argument(
        "--tag", action="append", default=[], metavar="TAG", dest="tags", help="add a tag; may be repeated"
    )
    note.add_argument(
        "--untag", action="append", default=[], metavar="TAG", dest="untags", help="remove a tag; may be repeated"
    )
    note.add_argument("--group", metavar="GROUP", help="what it belongs to with other runs, as a sweep")
    note.add_argument("-m", "--note", metavar="TEXT", help="replace the note")
    accept = "no longer show what mars the run: a NaN loss, a checkpoint that was not saved …"
    note.add_argument("--accept", action="store_true", help=accept)
    _does(note, "records:change_note")

    compare = verbs.add_parser("compare", help="print the keys in which runs differ, and their results")
    _runs(compare, "*", "two or more")
    compare.add_argument(
        "--group",
        nargs="+",
        action="extend",
        default=[],
        metavar="GROUP",
        dest="groups",
        help="a column for all runs of a group: their mean, or the best of them",
    )
    _does(compare, "compare:compare_runs", json=True)

    metrics = verbs.add_parser("metrics", help="print what a run's metrics have come to; as JSON their curves, too")
    metrics.add_argument("run", metavar="RUN")
    metrics.add_argument("metrics", nargs="*", metavar="METRIC", help="default: all")
    points = "most points of a curve in --json; default 50"
    metrics.add_argument("--points", type=arguments.count, default=50, metavar="N", help=points)
    _does(metrics, "metrics:show_metrics", json=True)

    export = verbs.add_parser("export", help="write runs' metrics or samples for other programs")
    _runs(export)
    directories = ", ".join(names_of(directories=True))
    formats = f"{', '.join(EXPORTERS)}; default: the extension of -o, or csv"
    export.add_argument("--format", choices=EXPORTERS, metavar="FORMAT", help=formats)
    what = (
        f"step metrics (default), evaluation metrics, both (default of {directories}), device samples, predictions by "
        "class, epochs, or pictures and texts"
    )
    export.add_argument("--what", choices=TABLES, metavar="TABLE", help=what)
    stdout = ", ".join(row.name for row in EXPORTERS.values() if row.is_text)
    target = f"file, for {directories} or several runs directory; written atomically; default for {stdout}: stdout"
    export.add_argument("-o", "--output", metavar="PATH", help=target)
    export.add_argument("--force", action="store_true", help="overwrite PATH")
    _does(export, "records:export_run")

    report = verbs.add_parser(
        "report", help="write one or several runs, with their curves, as an HTML or Markdown page"
    )
    _runs(report)
    target = "report.html, or report.md with figures beside it in report-figures; written atomically"
    report.add_argument("-o", "--output", required=True, metavar="FILE", help=target)
    report.add_argument("--force", action="store_true", help="overwrite FILE")
    _does(report, "records:report_runs")

    compact = verbs.add_parser("compact", help="join neighbouring rows in ended runs' journals; asks first")
    _runs(compact)
    compact.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    _does(compact, "records:compact_runs")

    rm = verbs.add_parser("rm", help="delete ended runs and their checkpoints; asks first")
    _runs(rm)
    rm.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    _does(rm, "records:remove_runs")


def _add_queue(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    queue = verbs.add_parser("queue", help="runs that wait for their devices: list, add, move, hold, release, cancel")
    _does(queue, "queue:list_queue", json=True)
    action = partial(_action, queue.add_subparsers(title="actions", metavar="ACTION"), "queue")
    action("list", "list_queue", "list what waits, the next one first (the default)")
    add = action("add", "add_runs", "queue a new run of each source; print their ids")
    add.add_argument("sources", nargs="*", metavar="PRESET|FILE|SCRIPT", help="as of tuiapp run")
    _set(add)
    add.add_argument("--name", metavar="NAME", help="what to call the run, if it is one")
    _describing(add)
    add.add_argument("--priority", type=int, default=0, metavar="N", help="higher ones start first; default 0")
    retry = "start it again up to N times if it loses a device, the host's memory, a node or its supervisor"
    add.add_argument("--retry", type=arguments.count, default=0, metavar="N", help=retry)
    add.add_argument("--hold", action="store_true", help="keep it in the queue until it is released")
    _launching(add)
    parallel = "with Slurm: at most N of the queue's jobs at a time"
    add.add_argument("--parallel", type=arguments.count, default=0, metavar="N", help=parallel)
    move = action("move", "move_runs", "move runs to a place in the queue")
    _runs(move)
    move.add_argument("place", metavar="PLACE", help="first, last, or a number from 1")
    for name, does, words in (
        ("hold", "hold_runs", "keep runs in the queue until they are released"),
        ("release", "release_runs", "let held runs start"),
        ("cancel", "cancel_runs", "take runs out of the queue"),
    ):
        several = action(name, does, words)
        _runs(several, "*")
        several.add_argument("--all", action="store_true", help="all that wait")
    action("clear", "clear_queue", "take all runs out of the queue")


def _add_measured_studies(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    scale = verbs.add_parser(
        "scale",
        help="measure how a training gets faster with more devices",
        description="Queues runs with each number of devices, in turns and each alone, and prints a table of them.",
        epilog="What follows -- are a script's own arguments.",
    )
    scale.add_argument("source", nargs="?", metavar="PRESET|FILE|SCRIPT", help="as of tuiapp run")
    counts = "numbers of devices, as 1,2,4,8; default: 1, 2, 4 … as many as there are"
    scale.add_argument("--devices", type=arguments.counts, metavar="N,N,…", help=counts)
    how = scale.add_mutually_exclusive_group()
    how.add_argument("--strong", action="store_true", help="the global batch stays the same (the default)")
    how.add_argument("--weak", action="store_true", help="the global batch grows with the devices")
    scale.add_argument("--steps", type=arguments.count, metavar="N", help="how many steps each run makes")
    _studying(scale, "scale:study_scaling")

    shootout = verbs.add_parser(
        "shootout",
        help="measure the same training on every backend that can run here",
        description="Queues runs of the same model, data, seed and batches with each backend, in turns and each alone, "
        "and prints a table of them.",
    )
    shootout.add_argument("source", nargs="?", metavar="PRESET|FILE", help="as of tuiapp run")
    which = "backends, as torch-ddp,jax-pmap; the others are compared with the first; default: all that can run"
    shootout.add_argument("--backends", type=arguments.backends, metavar="NAME,…", help=which)
    _studying(shootout, "shootout:study_backends")


def _studying(parser: argparse.ArgumentParser, does: str) -> None:
    """Adds what all studies of queued runs have."""
    parser.add_argument("--repeat", type=arguments.count, default=3, metavar="N", help="runs of each kind; default 3")
    _set(parser)
    parser.add_argument("--name", metavar="STUDY", help="what to call the study, the group of its runs")
    parser.add_argument("--show", metavar="STUDY", help="print the table of a study as far as it is, and start nothing")
    _json(parser)
    parser.add_argument("--csv", metavar="FILE", help="write the table as CSV, too")
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown, too")
    parser.add_argument("--report", metavar="FILE", help="write an HTML page with the table and curves, too")
    parser.add_argument("--force", action="store_true", help="overwrite these files")
    _does(parser, does)


def _add_sweep(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sweep = verbs.add_parser(
        "sweep",
        help="queue a run of every combination of values, or search among them",
        epilog="A, B: values; A..B a range; log:A..B one by factors; A..B:N N values of it. "
        "What follows -- are a script's own arguments, in which {KEY} stands for its value.",
    )
    sweep.add_argument("source", nargs="?", metavar="PRESET|FILE|SCRIPT", help="as of tuiapp run")
    sweep.add_argument("--like", metavar="RUN", help="begin with that run's configuration")
    through = "values of a key: learning_rate=0.1,0.01 or seed=0..4; may be repeated"
    sweep.add_argument("--grid", action="append", default=[], metavar="KEY=VALUES", help=through)
    between = "what to search: learning_rate=log:1e-5..1e-1 or optimizer=sgd,adam; may be repeated"
    sweep.add_argument("--search", action="append", default=[], metavar="KEY=RANGE", help=between)
    _set(sweep)
    sweep.add_argument("--name", metavar="STUDY", help="what to call it; default: the preset's name and a number")
    sweep.add_argument("--tag", action="append", default=[], metavar="TAG", dest="tags", help="may be repeated")
    sweep.add_argument("--trials", type=arguments.count, default=0, metavar="N", help="of a search: runs in all")
    at_a_time = "of a search: runs at a time (default: as many as fit); with Slurm: jobs at a time"
    sweep.add_argument("--parallel", type=arguments.count, default=0, metavar="N", help=at_a_time)
    sweep.add_argument("--metric", metavar="NAME", help="what is best; default: as the key best, or earlier runs")
    rises = sweep.add_mutually_exclusive_group()
    rises.add_argument("--maximize", dest="rises", action="store_true", default=None, help="more of it is better")
    rises.add_argument("--minimize", dest="rises", action="store_false", default=None, help="less of it is better")
    sampler = "of a search: tpe (default) or random"
    sweep.add_argument("--sampler", choices=("tpe", "random"), metavar="NAME", help=sampler)
    prune = "of a search: stop hopeless runs by median (default), hyperband or none"
    sweep.add_argument("--prune", choices=("median", "hyperband", "none"), metavar="NAME", help=prune)
    sweep.add_argument("--storage", metavar="URL", help="of a search: a database of Optuna's; default: its journal")
    sweep.add_argument("--priority", type=int, default=0, metavar="N", help="higher ones start first; default 0")
    sweep.add_argument("--retry", type=arguments.count, default=0, metavar="N", help="as of tuiapp queue add")
    sweep.add_argument("--hold", action="store_true", help="of a grid: keep its runs in the queue until released")
    _launching(sweep)
    dry = "check it, print the tuiapp run command of each run, and queue nothing"
    sweep.add_argument("--dry-run", action="store_true", help=dry)
    _does(sweep, "sweep:begin_sweep", json=True)


def _add_study(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    study = verbs.add_parser("study", help="what studies have come to: list, show, export, resume, best, stop, rm")
    _does(study, "study:list_studies", json=True)
    action = partial(_action, study.add_subparsers(title="actions", metavar="ACTION"), "study")
    action("list", "list_studies", "list them (the default)")

    def named(*words: str) -> argparse.ArgumentParser:
        parser = action(*words)
        parser.add_argument("name", metavar="STUDY", help="a study, or a group of runs")
        return parser

    named("show", "show_study", "show its trials, the best first, and the objective against each key")
    export = named("export", "export_study", "write its trials as a table")
    export.add_argument("--format", choices=("csv", "json"), metavar="FORMAT", help="csv (default) or json")
    export.add_argument("-o", "--output", metavar="FILE", help="default: stdout")
    export.add_argument("--force", action="store_true", help="overwrite FILE")
    resume = named("resume", "resume_study", "go on: with more trials, or with what a grid lacks")
    resume.add_argument("--trials", type=arguments.count, default=0, metavar="N", help="how many more")
    resume.add_argument("--hold", action="store_true", help="of a grid: keep its runs in the queue until released")
    best = named("best", "save_best", "print its best run")
    best.add_argument("--save", metavar="PRESET", help="save its configuration as a preset")
    best.add_argument("--force", action="store_true", help="overwrite a preset of that name")
    named("stop", "end_study", "end it: cancel what waits, stop what runs; also of tuiapp scale and shootout")
    rm = named("rm", "delete_study", "delete it; its runs stay, as a group, unless --runs")
    rm.add_argument("--runs", action="store_true", help="delete its runs, with all checkpoints, too")
    rm.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    verb: str,
    name: str,
    does: str,
    help: str,
    *,
    json: bool = True,
    runs_dir: bool = True,
    description: str | None = None,
) -> argparse.ArgumentParser:
    """Adds an action of a verb, which `does` carries out, with those of the options that many actions have."""
    parser = actions.add_parser(name, help=help, description=description)
    if json:
        # The verb alone takes it, too: an action's default must not override that.
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    if runs_dir:
        _runs_dir(parser, again=True)
    parser.set_defaults(does=f"{verb}:{does}")
    return parser


def _describing(parser: argparse.ArgumentParser) -> None:
    """Adds what describes runs, except their names."""
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", dest="tags", help="may be repeated")
    parser.add_argument("--group", metavar="GROUP", help="what it belongs to with other runs, as a sweep")
    parser.add_argument("--note", metavar="TEXT", help="a note on the run")


def _launching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launcher", metavar="NAME", help="join, ssh or slurm: run on several machines, with nodes=N")
    parser.add_argument("--slurm", metavar="OPTIONS", help="submit it to Slurm, with these options of sbatch")


def _add_presets(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    presets = verbs.add_parser("presets", help="list, show, save, rename or delete presets")
    action = _actions_without_runs(presets, "presets", "list_all")
    action("list", "list_all", "list them (the default)", json=True)
    action("show", "show", "print a preset as a configuration file").add_argument("name", metavar="PRESET")
    save = action("save", "save", "save a configuration under a name")
    save.add_argument("name", metavar="NAME")
    save.add_argument(
        "source",
        nargs="?",
        metavar="PRESET|FILE|SCRIPT",
        help="preset, configuration file or script to start from; default: all defaults",
    )
    _set(save)
    save.add_argument("--description", default="", metavar="TEXT", help="one-line description, shown in the list")
    save.add_argument("--force", action="store_true", help="overwrite a preset of that name")
    rename = action("rename", "rename", "rename one of your presets")
    rename.add_argument("name", metavar="PRESET")
    rename.add_argument("new_name", metavar="NAME")
    action("delete", "delete", "delete one of your presets").add_argument("name", metavar="PRESET")
    action("path", "path", "print the directory of your presets")


def _add_settings(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    settings = verbs.add_parser("settings", help="show your settings, their file, and the keys that can be remapped")
    action = _actions_without_runs(settings, "settings", "show")
    action("show", "show", "show the current settings (the default)", json=True)
    action("path", "path", "print the path of the file")
    action("keys", "list_keys", "list the actions and their keys, by the names used in [keys]", json=True)


def _add_environments(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    env = verbs.add_parser("env", help="list, create or remove the environments in which ranks run")
    action = _actions_without_runs(env, "env", "list_all")
    action("list", "list_all", "list each backend's interpreter, versions and GPUs (the default)", json=True)
    create = action(
        "create",
        "create",
        "create an environment for a framework's backends",
        description="Creates a virtual environment in which the framework's backends then run, with versions that are "
        "known to work together; with uv where it is installed.",
    )
    frameworks = Names("tuiapp.library.environments", "RECIPES")
    create.add_argument("name", choices=frameworks, metavar="FRAMEWORK", help="%(choices)s")
    create.add_argument("--cuda", action="store_true", help="for NVIDIA's GPUs (not tested); default: for CPUs")
    remove = action("remove", "remove", "remove an environment that create has made")
    remove.add_argument("name", choices=frameworks, metavar="FRAMEWORK", help="%(choices)s")


def _actions_without_runs(parser: argparse.ArgumentParser, verb: str, default: str) -> partial[argparse.ArgumentParser]:
    """Returns what adds actions to a verb that has nothing to do with runs; alone the verb is its `default` action."""
    parser.set_defaults(does=f"{verb}:{default}", json=False)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    return partial(_action, actions, verb, json=False, runs_dir=False)


def _add_devices(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    devices = verbs.add_parser("devices", help="show readings of the GPUs and the host, without a run")
    _json(devices)
    devices.add_argument("--watch", action="store_true", help="repeat until Ctrl-C")
    devices.add_argument(
        "--interval",
        type=arguments.interval,
        metavar="S",
        help=f"seconds between two samples; {INTERVAL_S:g} unless {INTERVAL_VARIABLE} says otherwise",
    )
    measured = "measure all-reduces of 1 KiB to 1 GiB between devices, beside what their links can do"
    devices.add_argument("--bandwidth", action="store_true", help=measured)
    count = "for --bandwidth: how many; default: all idle GPUs, or 2 CPU ranks"
    devices.add_argument("--devices", type=arguments.count, metavar="N", help=count)
    devices.add_argument("--device-ids", metavar="ID,ID,…", help="for --bandwidth: GPUs, by index or UUID")
    devices.add_argument("--platform", choices=("cuda", "cpu"), metavar="NAME", help="for --bandwidth: cuda or cpu")
    frameworks = Names("tuiapp.verbs.bandwidth", "FRAMEWORKS")
    with_what = "for --bandwidth: %(choices)s; default: the first that can run here"
    devices.add_argument("--framework", choices=frameworks, metavar="NAME", help=with_what)
    most = "for --bandwidth: what it may take, or larger arrays are left out; default 60"
    devices.add_argument("--seconds", type=arguments.seconds, metavar="S", help=most)
    _does(devices, "devices:show_devices")


def _runs(parser: argparse.ArgumentParser, count: str = "+", words: str | None = None) -> None:
    """Adds runs of which there may be several."""
    parser.add_argument("runs", nargs=count, metavar="RUN", help=words)
    parser.epilog = f"{parser.epilog or ''}{RUNS}"


def _does(parser: argparse.ArgumentParser, does: str, *, json: bool = False) -> None:
    """Ends a verb's options with those that many have, and says which function of which module carries it out."""
    if json:
        _json(parser)
    _runs_dir(parser, again=True)
    parser.set_defaults(does=does)


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="change a key; may be repeated"
    )


def _runs_dir(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    # Allowed before and after the verb; a verb's default must not override an earlier value.
    parser.add_argument(
        "--runs-dir",
        type=arguments.directory,
        default=argparse.SUPPRESS if again else None,
        metavar="DIR",
        help="directory of the runs (TUIAPP_RUNS_DIR)",
    )
