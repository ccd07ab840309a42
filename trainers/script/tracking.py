"""Reports a training script's metrics to its run, for the dashboard and every verb to show.

    import tuiapp

    run = tuiapp.init(name="baseline", config={"lr": 0.1}, total_steps=1000)
    for step in range(1, 1001):
        ...
        tuiapp.log({"loss": loss}, step=step)

Started by `tuiapp run`, the script reports to that run. Started in any other way, `init` makes a run directory and
starts a process that records it, which all ranks of the job share, also those of other nodes that share the runs
directory, and which ends with them. Nothing here raises into
training or waits for a device. `TUIAPP_MODE=disabled` turns it off.

Each `init` begins a run, and ends the one before: the trials of a sweep and the folds of a cross-validation are runs of
their own. Under `tuiapp run` the first is the run that was launched; the further ones are recorded as if the script had
been started by hand, and stop with it too.

The names follow wandb's, so that `import tuiapp as wandb` runs many a script; what has no counterpart here, such as
images and tables, is dropped, and said once.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from tuiapp.trainers.contract.metrics import MAX_STEP
from tuiapp.trainers.script.exit_hooks import current_process, hook_exit

if TYPE_CHECKING:
    from tuiapp.trainers.run.failures import RankError

MAX_FACT = 4096
"""Characters of a value of `config` or `summary`."""
MAX_ITEMS = 100
"""Of a list among them."""


class ReportedDict(dict[str, Any]):
    """A dictionary whose items are attributes too; changes are reported, and to `refuse` why one cannot be made."""

    def __init__(self, report: Callable[[dict[str, Any]], None], refuse: Callable[[Exception], None]) -> None:
        super().__init__()
        self.__dict__["_report"], self.__dict__["_refuse"] = report, refuse

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.__dict__["_report"]({key: value})

    def update(self, *values: Any, **more: Any) -> None:
        try:
            added = _mapping(values[0]) if values and values[0] is not None else {}
        except Exception as error:
            self.__dict__["_refuse"](error)
            added = {}
        super().update(added | more)
        self.__dict__["_report"](added | more)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    __setattr__ = __setitem__

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


class Run:
    """What `init` returns; without a client nothing is reported."""

    def __init__(self, client: Any = None, directory: Path | None = None, name: str = "", launched: Any = None) -> None:
        self._client = client
        self._launched = launched
        """Of a further run of a script under `tuiapp run`: a connection to the run that was launched, for its stop."""
        self.directory = directory
        """The run directory; None if nothing is reported."""
        self.rank: int = client.rank if client else 0
        self.name = name or (directory.name if directory else "")
        self.config, self.summary = self._facts("config"), self._facts("summary")
        self._step = 0
        self.checkpointed_step = 0
        """Of the last checkpoint reported."""
        self._asked = self._asked_to_save = 0
        self._error: RankError | None = None
        self._said: set[str] = set()
        self.finished = client is None
        if client is None:
            self.log = _ignore  # type: ignore[method-assign]

    def log(
        self,
        values: Mapping[str, Any] = MappingProxyType({}),
        step: int | None = None,
        commit: bool | None = None,
        **_: Any,
    ) -> None:
        """Reports named values of a step; without one, of the step after the last.

        Args:
            values: Metric → number, or array of one number, of NumPy, PyTorch or JAX, on any device. A slash groups:
                `train/loss`. Nested dictionaries are joined by slashes.
            step: Counted over the whole run; does not go back.
            commit: False: the next report without a step is of the same step.
        """
        try:
            step = self._step + 1 if step is None else step if type(step) is int else int(step)
            if not self._step <= step <= MAX_STEP:
                why = f"steps must not go back, or exceed {MAX_STEP:,}"
                self._say_once(f"step {step} comes after step {self._step}: {why}; it is not recorded", about="step")
                return
            if commit is not False or step == self._step:
                self._step = step
            # A step empties the processor's caches: this costs by how much it touches, not by what it does.
            kept, flat = {}, True
            for name, value in values.items():
                if type(value) is not float:
                    value = self._kept(name, value)
                    flat = flat and value is not None and type(value) is not dict
                kept[name] = value
            if not flat:
                kept = _flat(kept)
            if kept:
                self._client.add(step, kept)
        except Exception as error:
            self._say_once(f"log: {type(error).__name__}: {error}")

    def _kept(self, name: str, value: Any) -> Any:
        """A value that nobody changes any more: a number, an array on its device, or None if it is neither."""
        kind = type(value)
        keep = _KEEP.get(kind)
        if keep is None:
            if isinstance(value, Mapping):
                return {key: self._kept(f"{name}/{key}", item) for key, item in value.items()}
            keep = _KEEP[kind] = _keep_of(value)
        try:
            return keep(value)
        except Exception as error:
            why = "too large" if isinstance(error, OverflowError) else f"not a number ({kind.__name__})"
            self._say_once(f"{name} is {why}: it is not recorded")
            return None

    def evaluation(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Reports an evaluation after a step, the last one unless given; `loss` becomes `test/loss`."""
        try:
            named = {name if "/" in name else f"test/{name}": value for name, value in values.items()}
        except Exception as error:
            self._say_once(f"evaluation: {type(error).__name__}: {error}")
        else:
            self.log(named, step or self._step)

    def should_stop(self) -> bool:
        """Whether to end training before the next step: somebody has asked the run to stop.

        Call it once per step on every rank, or on none but one: all that call it get the same answer for the same call.
        """
        if self.finished:
            return self._client is None and _launch in _stopped
        self._asked += 1
        self._agree(self._asked)
        stops = not self._client.gate.enter(self._asked)
        if self._launched is not None and not self._launched.gate.enter(self._asked) and not stops:
            from tuiapp.trainers.contract.events import StopRequested
            from tuiapp.trainers.run.wire import STOP_OF

            self._client.backlog.append(StopRequested(now=True, by=f"{STOP_OF}{_launch}"))
            # The answer to all later calls.
            self._client.gate.decide(self._asked - 1)
            _stopped.add(_launch)
            return True
        if stops and self.id == _launch:
            _stopped.add(_launch)
        return stops

    def should_checkpoint(self) -> bool:
        """Whether to save a checkpoint now: somebody has asked for one, or for a stop that saves one.

        Call it once per step, before `should_stop`. A script that calls it need not save once more when it stops.
        """
        if self.finished:
            return False
        self._asked_to_save += 1
        self._agree(self._asked_to_save)
        saves = [client.gate.saves_before(self._asked_to_save) for client in self._clients]
        return any(saves)

    @property
    def _clients(self) -> list[Any]:
        return [client for client in (self._client, self._launched) if client is not None]

    def _agree(self, asked: int) -> None:
        if asked == 1 and self._asked + self._asked_to_save == 1:
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
        self.log = _ignore  # type: ignore[method-assign]
        with suppress(Exception):
            from tuiapp.trainers.contract.events import Phase
            from tuiapp.trainers.run.wire import Failed, Leaves
            from tuiapp.trainers.script.jobs import set_reports

            set_reports(None)
            rank = self._client.rank
            if self._asked or self._asked_to_save:
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

    def fail(self, error: BaseException) -> None:
        """Ends the run as failed, with the exception's traceback."""
        if not self.finished and self.directory is not None:
            with suppress(Exception):
                from tuiapp.trainers.run.failures import rank_error

                self._error = rank_error(error, "".join(traceback.format_exception(error)))
        self.finish(1)

    def watch(self, *_: Any, **__: Any) -> None:
        """Does nothing: gradients and weights are not recorded."""

    define_metric = unwatch = watch

    def __enter__(self) -> Run:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._end(error)

    @property
    def step(self) -> int:
        """The last step reported."""
        return self._step

    @property
    def id(self) -> str:
        """The run's id."""
        return self.directory.name if self.directory else ""

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

    def _facts(self, which: str) -> ReportedDict:
        return ReportedDict(
            lambda values: self._report_facts(**{which: values}),
            lambda error: self._say_once(f"{which}: {type(error).__name__}: {error}"),
        )

    def _report(self, config: Any, name: str, total_steps: int) -> None:
        if config is not None:
            self.config.update(config)
        try:
            if name or total_steps:
                self._report_facts(name=str(name or ""), total_steps=int(total_steps))
        except Exception as error:
            self._say_once(f"init: {type(error).__name__}: {error}")

    def _report_facts(self, **facts: Any) -> None:
        if not self.finished:
            try:
                from tuiapp.trainers.contract.events import Facts

                self._client.backlog.append(Facts(**{key: _plain(value) for key, value in facts.items()}))
            except Exception as error:
                self._say_once(f"{', '.join(facts)}: {type(error).__name__}: {error}")

    def _say_once(self, text: str, about: str = "") -> None:
        if (about or text) not in self._said and len(self._said) < 20:
            self._said.add(about or text)
            print(f"tuiapp: {text}", file=sys.stderr)


def _keep_of(value: Any) -> Callable[[Any], Any]:
    """How a value's type is kept: as a number or, if that is still to be computed, as an array."""
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
_begun = 0
"""Runs that this process has begun."""
_launch = ""
"""Id of the run that `tuiapp run` launched, if it has started this process."""
_stopped: set[str] = set()
"""It, once its stop was agreed, as every rank knows after the same step: no further run is recorded."""


def init(
    name: str = "",
    config: Any = None,
    total_steps: int = 0,
    *,
    dir: str | os.PathLike[str] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    mode: str = "",
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
    """
    global _run
    finish()
    try:
        _run = _begin(name, dir, rank, world_size, mode)
        name = _run.name if name and _run.directory else name
        _run._report(config, name, total_steps)
        if given := _given_values():
            _run.config.update(given)
        if _.get("sync_tensorboard"):
            _run._say_once(
                "sync_tensorboard has no effect; tuiapp run SCRIPT --set tensorboard_dir=DIR charts its files"
            )
    except Exception as error:
        print(f"tuiapp: nothing is reported: {error}", file=sys.stderr)
        _run = Run()
        with suppress(Exception):
            _run.config.update(config)
            _run.config.update(_given_values())
    return _run


def _given_values() -> dict[str, Any]:
    """What the run's configuration says of the script's own values: they take the place of what the script says."""
    from tuiapp.trainers.config.script_syntax import CONFIG_VARIABLE, as_value

    start = len(CONFIG_VARIABLE)
    return {name[start:]: as_value(text) for name, text in os.environ.items() if name.startswith(CONFIG_VARIABLE)}


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
    (_run or init()).log(values, step, commit)


def finish(exit_code: int = 0, **_: Any) -> None:
    """Ends the present run: see `Run.finish`."""
    if _run is not None:
        _run.finish(exit_code)


def watch(*_: Any, **__: Any) -> None:
    """Does nothing: gradients and weights are not recorded."""


define_metric = unwatch = login = setup = watch


def __getattr__(name: str) -> Any:
    """`run`, `config` and `summary` of the present run; for any other public name something that does nothing."""
    if name == "run":
        return _run
    if name in ("config", "summary"):
        return getattr(_run or init(), name)
    if name.startswith("_"):
        raise AttributeError(name)
    return _unsupported(name)


def _begin(name: str, dir: str | os.PathLike[str] | None, rank: int | None, world_size: int | None, mode: str) -> Run:
    global _begun, _launch
    # The workers of a DataLoader import the script too, before they know that they are daemons.
    process = current_process()
    worker = rank is None and process is not None and (process.daemon or getattr(process, "_inheriting", False))
    if "disabled" in (os.environ.get("TUIAPP_MODE"), mode) or worker:
        return Run()
    from tuiapp.trainers.contract.rundir import RunDir, default_runs_dir
    from tuiapp.trainers.script.client import Client
    from tuiapp.trainers.script.jobs import StoppedError, find_place, find_run, set_reports, suffix

    if _launch in _stopped:
        raise RuntimeError(f"{_launch}, the run that was launched, was stopped")
    _begun += 1
    place, part = find_place(rank, world_size, _begun), None
    if place.inherited:
        raise RuntimeError(f"rank {place.rank} is reported by the process that started this one")
    named = os.environ.get("TUIAPP_RUN_DIR")
    launched = RunDir(Path(named)) if named else None
    listener = os.environ.get("TUIAPP_LISTENER", "")
    if launched is not None and _begun == 1:
        directory, _launch = launched, launched.run_id
        client = Client(directory, place.rank, listener, announce=False)
        run = Run(client, directory.path, name and f"{name}{suffix(None)}")
    else:
        from tuiapp.trainers.config.plan import read_plan
        from tuiapp.trainers.contract.events import LogLine
        from tuiapp.trainers.launch import record
        from tuiapp.trainers.script.meeting import begin_at_meeting

        # A node that does not share the run's directory keeps a part of its own elsewhere.
        beside = launched.path.parent if launched is not None and launched.config.is_file() else default_runs_dir()
        runs_dir = Path(dir).absolute() if dir is not None else beside
        further = launched, _begun
        others = place.part[1] - 1 if place.part else 0
        try:
            recorder = find_run(
                runs_dir,
                place,
                lambda place: begin_at_meeting(
                    runs_dir,
                    place,
                    lambda: record(runs_dir, place.world_size, None, *further, named=bool(name), others=others),
                    lambda: record(runs_dir, place.local_size, place.part, *further, named=bool(name)),
                ),
            )
        except StoppedError as error:
            # What its supervisor does to the ranks that it knows.
            print(f"tuiapp: {error}: SIGTERM", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGTERM)
            raise
        directory, part = recorder.run, read_plan(recorder.run.plan).part
        client, of_launched = Client(directory, place.rank, recorder.listener), None
        if recorder.apart:
            alone = f"the ranks of {f'node {part[0]}' if part else 'this node'} are a run of their own"
            text = f"{alone}, which a stop of the others does not reach: {recorder.apart}"
            print(f"tuiapp: {text}", file=sys.stderr)
            client.backlog.append(LogLine(rank=None, stream="run", text=text))
        if launched is not None:
            with suppress(OSError):
                of_launched = Client(launched, place.rank, listener, announce=False)
        run = Run(client, directory.path, name and f"{name}{suffix(part)}", of_launched)
    set_reports(place)
    if directory is launched:
        from tuiapp.trainers.run.stacks import answer_unless_handled

        answer_unless_handled(directory.rank(place.rank))
    elif place.rank == 0 or (part and place.first_of_part):
        known_as = directory.run_id if dir is None else shlex.quote(str(directory.path))
        which = f"the ranks of node {part[0]} of {part[1]}, a run of their own" if part else "this run"
        print(f"tuiapp: to watch {which}: tuiapp attach {known_as}", file=sys.stderr)
    hook_exit(_end_present, _abandon)
    return run


def _end_present(error: BaseException | None) -> None:
    if _run is not None:
        _run._end(error)


def _abandon() -> None:
    """A forked child reports nothing, as its parent does, unless it calls `init`."""
    if _run is not None and not _run.finished:
        _run.finished = True
        _run.log = _ignore  # type: ignore[method-assign]
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
        print(f"tuiapp: {name} is not supported and has no effect", file=sys.stderr)
    return _dropped


def _ignore(*_: Any, **__: Any) -> None:
    pass


def _flat(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{name}/")
        elif value is not None:
            found[name] = value
    return found


def _mapping(values: Any) -> dict[str, Any]:
    pairs = values if isinstance(values, Mapping) or not hasattr(values, "__dict__") else vars(values)
    return {str(key): value for key, value in dict(pairs).items()}


def _plain(value: Any) -> Any:
    """What JSON can hold; other values as text."""
    from tuiapp.trainers.script.client import MAX_NAME, encodable

    if isinstance(value, Mapping):
        return {encodable(key, MAX_NAME): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value[:MAX_ITEMS]]
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if not isinstance(value, str) and hasattr(value, "item") and getattr(value, "size", 0) == 1:
        return _plain(value.item())
    return encodable(value, MAX_FACT)


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0
