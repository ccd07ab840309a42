"""Reports a training script's metrics to its run, for the dashboard and every verb to show.

    import tuiapp

    run = tuiapp.init(name="baseline", config={"lr": 0.1}, total_steps=1000)
    for step in range(1, 1001):
        ...
        tuiapp.log({"loss": loss}, step=step)

Started by `tuiapp run`, the script reports to that run. Started in any other way, `init` makes a run directory and
starts a process that records it, which all ranks of the job share, also those of other nodes that share the runs
directory, and which ends with them. Nothing here raises into training or waits for a device. `TUIAPP_MODE=disabled`
turns it off.

Each `init` begins a run, and ends the one before: the trials of a sweep and the folds of a cross-validation are runs of
their own. Under `tuiapp run` the first is the run that was launched; the further ones are recorded as if the script had
been started by hand, and stop with it too.

The names follow wandb's, so that `import tuiapp as wandb` runs many a script; what has no counterpart here, such as
tables, is dropped, and said once.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from tuiapp.trainers.contract.metrics import MAX_STEP
from tuiapp.trainers.run.disk_full_safe_stdio import say
from tuiapp.trainers.script.continuing import ResumeError, Wanted, read_wanted
from tuiapp.trainers.script.exit_hooks import current_process, hook_exit
from tuiapp.trainers.script.values import MAX_ITEMS, Config, ReportedDict, facts, plain

if TYPE_CHECKING:
    from tuiapp.trainers.run.rank_end import RankError


class Run:
    """What `init` returns; without a client nothing is reported, which `child` says: another process reports."""

    def __init__(
        self,
        client: Any = None,
        directory: Path | None = None,
        name: str = "",
        launched: Any = None,
        *,
        child: bool = False,
    ) -> None:
        self._client = client
        self._launched = launched
        """A connection to the run that was launched, for the stop of a script's further runs under `tuiapp run`."""
        self.directory = directory
        """The run directory; None if nothing is reported."""
        self.rank: int = client.rank if client else 0
        self.name = name or (directory.name if directory else "")
        self.config = Config(*self._reporting("config"), lambda: bool(self._step))
        self.summary = ReportedDict(*self._reporting("summary"))
        self._step = 0
        self._lock = threading.RLock()
        """Guards the step: threads may report, and a signal's handler while its thread does."""
        self.resumed = False
        """Whether an earlier run goes on."""
        self._id = directory.name if directory else ""
        self._files = ""
        self.checkpointed_step = 0
        """The step of the last checkpoint reported."""
        self._stop_calls = self._checkpoint_calls = 0
        self._error: RankError | None = None
        self._said: set[str] = set()
        self._keepers: dict[str, tuple[type, Callable[[Any], Any]]] = {}
        """Metrics that were no floats → the last type of value, and how it is kept."""
        self.finished = client is None
        if client is None:
            self.log = self._log_beside if child else _ignore  # type: ignore[method-assign]
        else:
            client.on_aggregates = self.summary.restore

    def log(
        self,
        values: Mapping[str, Any] = MappingProxyType({}),
        step: int | None = None,
        commit: bool | None = None,
        **_: Any,
    ) -> None:
        """Reports named values of a step; without one, of the step after the furthest.

        Args:
            values: Metric → number, or array of one number, of NumPy, PyTorch or JAX, on any device; a picture, as
                an array [H, W], [H, W, C] or [C, H, W], a picture of PIL's, a figure or an `Image`; a text; or a list
                of pictures or texts. A slash groups: `train/loss`. Nested dictionaries are joined by slashes.
            step: Counted over the whole run. An earlier one than the last is that of a late value: the next report
                without a step comes after the furthest.
            commit: False: the next report without a step is of the same step.
        """
        # Threads report in the order of the steps that they were given.
        with self._lock:
            try:
                step = self._step + 1 if step is None else step if type(step) is int else int(step)
                if not 0 <= step <= MAX_STEP:
                    self._say_once(f"step {step} is not in 0 to {MAX_STEP:,}: it is not recorded", about="step")
                    return
                if step > self._step:
                    self._step = step - (commit is False)
                # A step empties the processor's caches: this costs by how much it touches, not by what it does.
                kept, flat = {}, True
                for name, value in values.items():
                    if type(value) is not float:
                        value = self._kept(name, value)
                        flat = flat and value is not None and type(value) not in (dict, list)
                    kept[name] = value
                if not flat:
                    kept = _flat(kept)
                    for name in [name for name, value in kept.items() if type(value) is list]:
                        self._client.show(step, name, kept.pop(name))
                if kept:
                    self._client.add(step, kept)
            except Exception as error:
                self._say_once(f"log: {type(error).__name__}: {error}")

    def _kept(self, name: str, value: Any) -> Any:
        """Copies a value, which may change later: to a number, an array on its device, a list of `Taken`, or None."""
        kind = type(value)
        kept_kind, keep = self._keepers.get(name, (None, _refuse))
        if kept_kind is not kind:
            if isinstance(value, Mapping):
                return {key: self._kept(f"{name}/{key}", item) for key, item in value.items()}
            keep = _KEEP[kind] if kind in _KEEP else _KEEP.setdefault(kind, _keep_of(value))
            self._keepers[name] = kind, keep
            if str(getattr(value, "dtype", "")) in ("float32", "torch.float32"):
                self._client.singles.add(name)
        try:
            return keep(value)
        except Exception as error:
            why = f"is {'too large' if isinstance(error, OverflowError) else f'not a number ({kind.__name__})'}"
            try:
                from tuiapp.trainers.script.media import take

                return take(value)
            except Exception as other:
                if not isinstance(other, TypeError):
                    why = f"cannot be read: {other}"
            self._say_once(f"{name} {why}: it is not recorded")
            return None

    def evaluation(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Reports an evaluation after a step, the last one unless given; `loss` becomes `test/loss`."""
        try:
            named = {name if "/" in name else f"test/{name}": value for name, value in values.items()}
        except Exception as error:
            self._say_once(f"evaluation: {type(error).__name__}: {error}")
        else:
            self.log(named, self._step if step is None else step)

    def should_stop(self) -> bool:
        """Tells whether to end training before the next step: somebody has asked the run to stop.

        Call it once per step on every rank, or on none but one: all that call it get the same answer for the same call.
        """
        if self.finished:
            return self._client is None and _launch in _stopped
        self._stop_calls += 1
        self._agree(self._stop_calls)
        stops = not self._client.gate.enter(self._stop_calls)
        if self._launched is not None and not self._launched.gate.enter(self._stop_calls) and not stops:
            from tuiapp.trainers.contract.events import StopRequested
            from tuiapp.trainers.run.wire import STOP_OF

            self._client.backlog.append(StopRequested(now=True, by=f"{STOP_OF}{_launch}"))
            # The answer to all later calls.
            self._client.gate.decide(self._stop_calls - 1)
            _stopped.add(_launch)
            return True
        if stops and self.directory is not None and self.directory.name == _launch:
            _stopped.add(_launch)
        return stops

    def should_checkpoint(self) -> bool:
        """Tells whether to save a checkpoint now: somebody has asked for one, or for a stop that saves one.

        Call it once per step, before `should_stop`. A script that calls it need not save once more when it stops.
        """
        if self.finished:
            return False
        self._checkpoint_calls += 1
        self._agree(self._checkpoint_calls)
        saves = [client.gate.saves_before(self._checkpoint_calls) for client in self._clients]
        return any(saves)

    @property
    def _clients(self) -> list[Any]:
        return [client for client in (self._client, self._launched) if client is not None]

    def _agree(self, calls: int) -> None:
        if calls == 1 and self._stop_calls + self._checkpoint_calls == 1:
            from tuiapp.trainers.run.wire import Agrees

            for client in self._clients:
                client.backlog.append(Agrees(client.rank))

    def checkpoint(self, path: str | os.PathLike[str], step: int | None = None) -> None:
        """Reports a checkpoint that the script has saved, a file or a directory; once, even if all ranks report it."""
        try:
            if not self.finished:
                from tuiapp.trainers.contract.events import Checkpoint

                size = _size(Path(path))
                at = self._step if step is None else int(step)
                self._client.backlog.append(Checkpoint(step=at, epoch=0.0, name=str(path), bytes=size, seconds=0.0))
                self.checkpointed_step = at
        except Exception as error:
            self._say_once(f"checkpoint: {type(error).__name__}: {error}")

    def sharding(self, name: str, array: Any) -> None:
        """Reports how an array lies on the devices: a JAX array, or a PyTorch DTensor."""
        try:
            if not self.finished:
                from tuiapp.trainers.rank.layouts import layout

                self._client.backlog.append(layout(name, array, self._client.rank))
        except Exception as error:
            self._say_once(f"sharding of {name}: {type(error).__name__}: {error}")

    def finish(self, exit_code: int = 0, **_: Any) -> None:
        """Ends the run; called at exit, and at the end of a `with` block. A run that is not finished has failed.

        Call it with the exit code before `raise SystemExit(code)`: only `sys.exit`, `exit` and `quit` are seen at exit.
        """
        if self.finished:
            return
        self.finished = True
        self.log = self._too_late  # type: ignore[method-assign]
        for key, value in self.config.unread().items():
            how = f"it reads neither run.config[{key!r}] nor {{{key}}} in its arguments"
            self._say_once(f"the {value!r} that was given for {key} was not used: the script has its own, and {how}")
        with suppress(Exception):
            from tuiapp.trainers.contract.events import Phase
            from tuiapp.trainers.run.wire import Failed, Leaves
            from tuiapp.trainers.script.jobs import set_reports

            set_reports(None)
            rank = self._client.rank
            if self._stop_calls or self._checkpoint_calls:
                for client in self._clients:
                    client.backlog.append(Leaves(rank, client.gate.started))
            self._client.backlog.append(
                Failed(rank, exit_code, self._error) if exit_code else Phase(rank=rank, phase="done")
            )
            if self._launched is not None:
                # Its own end is that of the process, or was that of its first run.
                self._launched.backlog.append(Phase(rank=rank, phase="done"))
            for client in self._clients:
                client.close()

    def _too_late(self, *_: Any, **__: Any) -> None:
        self._say_once("log: the run has ended: what is reported after finish() is not recorded")

    def _log_beside(self, *values: Any, **options: Any) -> None:
        """Reports from a process that one has started which reports."""
        global _run
        with _beginning:
            if _run is self or _run is None or _run.finished:
                if _is_starting():
                    self._say_once("what the script logs while a worker imports it is not recorded", about="child")
                    return
                try:
                    _run = _beside()
                except Exception as error:
                    which = f"process {os.getpid()} was started by one that reports"
                    self._say_once(f"{which}: its values are not recorded: {error}", about="child")
                    return
        self.log = _run.log  # type: ignore[method-assign]
        _run.log(*values, **options)

    def fail(self, error: BaseException) -> None:
        """Ends the run as failed, with the exception's traceback."""
        if not self.finished and self.directory is not None:
            with suppress(Exception):
                from tuiapp.trainers.run.rank_end import rank_error

                self._error = rank_error(error, "".join(traceback.format_exception(error)))
        self.finish(1)

    def watch(self, *_: Any, **__: Any) -> None:
        """Does nothing: gradients and weights are not recorded."""

    unwatch = watch

    def define_metric(
        self, name: str = "", step_metric: str = "", *_: Any, summary: str | None = None, goal: str = "", **__: Any
    ) -> str:
        """Says what a metric is drawn by, and what its value in the summary is, of all that are reported.

        Args:
            name: Of the metric, or with `*` of several: `val/*`.
            step_metric: The metric that its charts have in place of steps, reported with it: `epoch`.
            summary: `max`, `min`, `mean`, `first`, `last` or `best`; of several, separated by commas, each is
                `name/max` and so on. `none`: it has no value there.
            goal: `maximize` or `minimize`: what `best` is; the least without it.

        Returns:
            The name, which may be another one's `step_metric`.
        """
        try:
            if step_metric:
                self._report_facts(step_metrics={str(name): str(step_metric)})
            if self._client is not None and summary:
                self._client.aggregates.define(str(name), str(summary), str(goal or ""))
        except Exception as error:
            self._say_once(f"define_metric: {error}")
        return str(name)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._end(error)

    @property
    def step(self) -> int:
        """Returns the furthest step reported."""
        return self._step

    @property
    def id(self) -> str:
        """Returns the run's id: that which the script has given it, or else its directory's name."""
        return self._id

    @property
    def dir(self) -> str:
        """Returns a directory for the script's own files, within the run's; a temporary one if nothing is recorded."""
        if not self._files:
            if self.directory is None:
                self._files = tempfile.mkdtemp(prefix="tuiapp-")
            else:
                self._files = str(self.directory / "files")
                os.makedirs(self._files, mode=0o700, exist_ok=True)
        return self._files

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt) and not self.finished:
            from tuiapp.trainers.contract.events import StopRequested

            self._client.backlog.append(StopRequested(now=True, by="Ctrl-C"))
            self.finish()
        elif error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.finish()
        elif isinstance(error, SystemExit) and isinstance(error.code, int):
            self.finish(error.code)
        else:
            self.fail(error)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _unsupported(name)

    def _reporting(self, which: str) -> tuple[Callable[[dict[str, Any]], None], Callable[[Exception], None]]:
        return (
            lambda values: self._report_facts(**{which: values}),
            lambda error: self._say_once(f"{which}: {type(error).__name__}: {error}"),
        )

    def _go_on(self) -> None:
        """Takes over what an earlier part of the run has reported."""
        from tuiapp.trainers.contract.rundir import RunDir
        from tuiapp.trainers.script.continuing import last_step
        from tuiapp.trainers.state.summary import summarise

        if self.directory is None:
            return
        info = summarise(RunDir(self.directory))
        self.resumed, self._step = True, last_step(info.directory)
        self.name = self.name or info.facts.name
        self.config.restore(info.facts.config)
        self.summary.restore(info.facts.summary)
        self._client.aggregates.restore(info.facts.summary)

    def _report(self, config: Any, name: str, total_steps: int) -> None:
        if config is not None:
            self.config.update(config)
        try:
            if name or total_steps:
                self._report_facts(name=str(name or ""), total_steps=int(total_steps))
        except Exception as error:
            self._say_once(f"init: {type(error).__name__}: {error}")

    def _report_facts(self, **said: Any) -> None:
        if not self.finished:
            try:
                from tuiapp.trainers.contract.events import Facts

                fields: dict[str, Any] = {
                    key: facts(value) if isinstance(value, dict) else plain(value) for key, value in said.items()
                }
                self._client.backlog.append(Facts(**fields))
            except Exception as error:
                self._say_once(f"{', '.join(said)}: {type(error).__name__}: {error}")

    def _say_once(self, text: str, about: str = "") -> None:
        if (about or text) not in self._said and len(self._said) < 20:
            self._said.add(about or text)
            say(text)


def _keep_of(value: Any) -> Callable[[Any], Any]:
    """Returns how a value's type is kept: as a number or, if that is still to be computed, as an array."""
    if (torch := sys.modules.get("torch")) and isinstance(value, torch.Tensor):
        return _keep_tensor
    if (jax := sys.modules.get("jax")) and isinstance(value, jax.Array):
        return _keep_jax
    return _refuse if isinstance(value, str | bytes) else _keep_number


def _keep_tensor(value: Any) -> Any:
    if value.is_cpu:
        return value.item()
    if value.numel() != 1:
        raise ValueError("more than one number")
    # The copy is made in the order of the device's other work: nothing waits for it.
    return value.detach().clone()


def _keep_jax(value: Any) -> Any:
    return value if value.ndim == 0 else value.reshape(())


def _keep_number(value: Any) -> float:
    return float(value) if not getattr(value, "ndim", 0) else float(value.reshape(()))


def _refuse(_: Any) -> Any:
    raise TypeError("text is not a number")


_KEEP: dict[type, Callable[[Any], Any]] = {float: float, int: float, bool: float}
"""Type → how its values are kept."""

_run: Run | None = None
_beginning = threading.RLock()
"""Held while a run begins: of several threads that report one begins it."""
_begun = 0
"""Runs that this process has begun."""
_launch = ""
"""Id of the run that `tuiapp run` launched, if it has started this process."""
_stopped: set[str] = set()
"""The run whose stop was agreed, as every rank knows after the same step: no further run is recorded."""


def init(
    name: str = "",
    config: Any = None,
    total_steps: int = 0,
    *,
    dir: str | os.PathLike[str] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    mode: str = "",
    id: str | None = None,
    resume: bool | str | None = None,
    **_: Any,
) -> Run:
    """Begins a run, or joins that of the job; ends the present one. `current` returns that instead.

    Every rank of a job calls it equally often: the second calls of all begin its second run.

    Args:
        name: Shown beside the run's id.
        config: Hyperparameters: a mapping, or an object with attributes such as `argparse.Namespace`. Values that a
            sweep or `tuiapp run --set values=…` gives take the place of these.
        total_steps: Steps until the end, for the progress bar; 0 if unknown.
        dir: Where the run directory is made; the user's runs if None. Ignored for the run that `tuiapp run` launches.
        rank: This process's rank; found in the environment of torchrun, Slurm or MPI, or by torch.distributed or
            jax.distributed, if None.
        world_size: The number of ranks, as `rank`.
        mode: "disabled" reports nothing, as `TUIAPP_MODE=disabled`.
        id: Names the run for `resume`; it is its name, too, without a `name`.
        resume: Whether to go on with the run of that `id`, after the last step that it has reported: "allow" if there
            is one, "must", "never", or "auto", as True, which without an `id` goes on with this script's last run in
            this directory unless it completed. Otherwise, the run is a new one. Of the run that `tuiapp run` launched,
            `tuiapp run --resume` decides.

    Raises:
        ResumeError: Nothing is begun: there is no run that `resume="must"` asks for, or one that "never" rules out, or
            it is live.
    """
    global _run
    finish()
    wanted = read_wanted(id, resume)
    try:
        _run = _begin(name or wanted.id, dir, rank, world_size, mode, wanted)
        name = _run.name if name and _run.directory else name or ("" if _run.resumed else wanted.id)
        _run._report(config, name, total_steps)
        _run.config.give(*_given_values())
        if _.get("sync_tensorboard"):
            _run._say_once(
                "sync_tensorboard has no effect; tuiapp run SCRIPT --set tensorboard_dir=DIR charts its files"
            )
    except ResumeError as error:
        raise error.with_traceback(None) from None
    except Exception as error:
        say(f"nothing is reported: {error}")
        _run = Run()
        with suppress(Exception):
            _run.config.update(config)
            _run.config.give(*_given_values())
    return _run


def _given_values() -> tuple[dict[str, Any], list[str]]:
    """Returns the script's own values that its launch gives, and which of them its arguments name."""
    from tuiapp.trainers.config.script_syntax import CONFIG_VARIABLE, IN_ARGUMENTS, as_value

    start = len(CONFIG_VARIABLE)
    values = {name[start:]: as_value(text) for name, text in os.environ.items() if name.startswith(CONFIG_VARIABLE)}
    return values, os.environ.get(IN_ARGUMENTS, "").split()


def current(name: str = "", config: Any = None, total_steps: int = 0, defaults: Sequence[str] = ()) -> Run:
    """Returns the present run, with `config` and `total_steps` added to it; begins one if none is there.

    `defaults` are keys of `config` that have the defaults of the library that reads it.
    """
    if _run is None or _run.finished:
        run = init(name, config, total_steps)
    else:
        run = _run
        run._report(config, "", total_steps)
    for start in range(0, len(defaults), MAX_ITEMS):
        run._report_facts(defaults=defaults[start : start + MAX_ITEMS])
    return run


def log(
    values: Mapping[str, Any] = MappingProxyType({}), step: int | None = None, commit: bool | None = None, **_: Any
) -> None:
    """Reports named values of a step to the present run, which begins with the first report: see `Run.log`."""
    (_run or _first()).log(values, step, commit)


def _first() -> Run:
    """Returns the run that begins with the first report, unless a process that reports has started this one."""
    global _run
    from tuiapp.trainers.script.jobs import reporting_starter

    with _beginning:
        if _run is None:
            _run = Run(child=True) if reporting_starter() else init()
        return _run


def _begin_anew() -> None:
    """Makes a new lock in a forked child: a thread that the child does not have may have held the other."""
    global _beginning
    _beginning = threading.RLock()


os.register_at_fork(after_in_child=_begin_anew)


def _is_starting() -> bool:
    """Tells whether this process is a worker that imports the script, and with it what only the first should do."""
    return bool(getattr(current_process(), "_inheriting", False))


def _beside() -> Run:
    """Begins to report to the run of the process that has started this one, as its rank; raises OSError."""
    from tuiapp.trainers.script.client import Client
    from tuiapp.trainers.script.jobs import starters_run

    directory, rank, listener = starters_run()
    run = Run(Client(directory, rank, listener, beside=True), directory.path)
    hook_exit(_end_present, _abandon)
    return run


def finish(exit_code: int = 0, **_: Any) -> None:
    """Ends the present run: see `Run.finish`."""
    if _run is not None:
        _run.finish(exit_code)


def watch(*_: Any, **__: Any) -> None:
    """Does nothing: gradients and weights are not recorded."""


unwatch = login = setup = watch


def define_metric(name: str = "", step_metric: str = "", *_: Any, **options: Any) -> str:
    """Says what a metric is drawn by, and what its value in the summary is: see `Run.define_metric`."""
    return (_run or init()).define_metric(name, step_metric, **options)


class _Util:
    """wandb's `util`, as far as it is there."""

    @staticmethod
    def generate_id(length: int = 8) -> str:
        """Returns a new id for `init(id=…)`."""
        return secrets.token_hex(length)[:length]


util = _Util()


def __getattr__(name: str) -> Any:
    """`run`, `config` and `summary` of the present run, `Image`; for any other name something that does nothing."""
    if name == "run":
        return _run
    if name in ("config", "summary"):
        return getattr(_run or init(), name)
    if name == "Image":
        from tuiapp.trainers.script.media import Image

        return Image
    if name.startswith("_"):
        raise AttributeError(name)
    return _unsupported(name)


def _begin(
    name: str,
    dir: str | os.PathLike[str] | None,
    rank: int | None,
    world_size: int | None,
    mode: str,
    wanted: Wanted,
) -> Run:
    global _begun, _launch
    # The workers of a DataLoader import the script too, before they know that they are daemons.
    process = current_process()
    worker = rank is None and process is not None and (process.daemon or _is_starting())
    if "disabled" in (os.environ.get("TUIAPP_MODE"), mode) or worker:
        return Run(child=worker)
    from tuiapp.trainers.contract.rundir import RunDir, default_runs_dir
    from tuiapp.trainers.script.client import Client
    from tuiapp.trainers.script.continuing import check_launched, choose, given_id, keep_id
    from tuiapp.trainers.script.jobs import (
        StoppedError,
        begin_at_meeting,
        find_job_rank,
        find_run,
        set_reports,
        suffix,
    )

    if _launch in _stopped:
        raise RuntimeError(f"{_launch}, the run that was launched, was stopped")
    _begun += 1
    job_rank, part = find_job_rank(rank, world_size, _begun), None
    if job_rank.inherited:
        raise RuntimeError(f"rank {job_rank.rank} is reported by the process that started this one")
    named = os.environ.get("TUIAPP_RUN_DIR")
    launched = RunDir(Path(named)) if named else None
    listener = os.environ.get("TUIAPP_LISTENER", "")
    if launched is not None and _begun == 1:
        directory, _launch = launched, launched.run_id
        goes_on = check_launched(launched, wanted, resumes="TUIAPP_RESUME" in os.environ)
        client = Client(directory, job_rank.rank, listener, world_size=job_rank.world_size, announce=False)
        run = Run(client, directory.path, name and f"{name}{suffix(None)}")
    else:
        from tuiapp.trainers.config.plan import read_plan
        from tuiapp.trainers.contract.events import LogLine
        from tuiapp.trainers.launch import record
        from tuiapp.trainers.state.status import last_attempt

        # A node that does not share the run's directory keeps a part of its own elsewhere.
        beside = (
            launched.path.parent if launched is not None and os.path.isfile(launched.config) else default_runs_dir()
        )
        runs_dir = Path(dir).absolute() if dir is not None else beside
        other_nodes = job_rank.part[1] - 1 if job_rank.part else 0

        def begin(ranks: int, part: tuple[int, int] | None = None, other_nodes: int | None = None) -> RunDir:
            earlier = choose(runs_dir, wanted)
            return record(
                runs_dir, ranks, part, launched, _begun, named=bool(name), others=other_nodes, earlier=earlier
            )

        try:
            recorder = find_run(
                runs_dir,
                job_rank,
                lambda job_rank: begin_at_meeting(
                    runs_dir,
                    job_rank,
                    lambda: begin(job_rank.world_size, None, other_nodes),
                    lambda: begin(job_rank.local_size, job_rank.part),
                ),
            )
        except StoppedError as error:
            # What its supervisor does to the ranks that it knows.
            say(f"{error}: SIGTERM")
            os.kill(os.getpid(), signal.SIGTERM)
            raise
        directory, part = recorder.run, read_plan(recorder.run.plan).part
        goes_on = wanted.goes_on and last_attempt(directory) > 1
        client, of_launched = Client(directory, job_rank.rank, recorder.listener, world_size=job_rank.world_size), None
        if recorder.apart:
            alone = f"the ranks of {f'node {part[0]}' if part else 'this node'} are a run of their own"
            text = f"{alone}, which a stop of the others does not reach: {recorder.apart}"
            say(text)
            client.backlog.append(LogLine(rank=None, stream="run", text=text))
        if launched is not None:
            with suppress(OSError):
                of_launched = Client(launched, job_rank.rank, listener, announce=False)
        run = Run(client, directory.path, name and f"{name}{suffix(part)}", of_launched)
    keep_id(directory, wanted.id)
    run._id = wanted.id or given_id(directory) or directory.run_id
    if goes_on:
        run._go_on()
    set_reports(job_rank, directory.path, client.listener)
    if directory is launched:
        from tuiapp.trainers.run.stacks import answer_unless_handled

        answer_unless_handled(directory.rank(job_rank.rank))
    elif job_rank.rank == 0 or (part and job_rank.first_of_part):
        known_as = directory.run_id if dir is None else shlex.quote(str(directory.path))
        which = f"the ranks of node {part[0]} of {part[1]}, a run of their own" if part else "this run"
        say(f"to watch {which}: tuiapp attach {known_as}")
    hook_exit(_end_present, _abandon)
    return run


def _end_present(error: BaseException | None) -> None:
    if _run is not None:
        _run._end(error)


def _abandon() -> None:
    """Lets a forked child report over a connection of its own, which its first value makes."""
    if _run is not None and not _run.finished:
        _run.finished = True
        _run._said.clear()
        _run.log = _run._log_beside  # type: ignore[method-assign]
        with suppress(Exception):
            for client in _run._clients:
                client.abandon()


class Dropped:
    """Stands for what is not supported: whatever is done with it does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Dropped:
        return self

    def __getattr__(self, name: str) -> Dropped:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __enter__(self) -> Dropped:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_dropped = Dropped()
_names_said: set[str] = set()


def _unsupported(name: str) -> Dropped:
    if name not in _names_said:
        _names_said.add(name)
        say(f"{name} is not supported and has no effect")
    return _dropped


def _ignore(*_: Any, **__: Any) -> None:
    pass


def _flat(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name}/")
        elif value is not None:
            flat[name] = value
    return flat


def _size(path: Path) -> int:
    if os.path.isdir(path):
        return sum(file.stat().st_size for file in path.rglob("*") if os.path.isfile(file))
    return path.stat().st_size if os.path.exists(path) else 0
