"""Reports a training script's metrics to its run, for the dashboard and every verb to show.

    import tuiapp

    run = tuiapp.init(name="baseline", config={"lr": 0.1}, total_steps=1000)
    for step in range(1, 1001):
        ...
        tuiapp.log({"loss": loss}, step=step)

Started by `tuiapp run`, the script reports to that run. Started in any other way, `init` makes a run directory and
starts a process that records it, which all ranks of the job share and which ends with them. Nothing here raises into
training or waits for a device. `TUIAPP_MODE=disabled` turns it off.

The names follow wandb's, so that `import tuiapp as wandb` runs many a script; what has no counterpart here, such as
images and tables, is dropped, and said once.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from trainers.exit_hooks import current_process, hook_exit

if TYPE_CHECKING:
    from trainers.runtime.failures import RankError

MAX_STEP = 2**53
MAX_FACT = 4096
"""Characters of a value of `config` or `summary`."""


class Facts(dict[str, Any]):
    """A dictionary whose items are attributes too; changes are reported."""

    def __init__(self, report: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self.__dict__["_report"] = report

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.__dict__["_report"]({key: value})

    def update(self, *values: Any, **more: Any) -> None:
        added = _mapping(values[0]) if values and values[0] is not None else {}
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

    def __init__(self, client: Any = None, directory: Path | None = None, name: str = "") -> None:
        self._client = client
        self.directory = directory
        """The run directory; None if nothing is reported."""
        self.rank: int = client.rank if client else 0
        self.name = name or (directory.name if directory else "")
        self.config = Facts(lambda values: self._tell_facts(config=values))
        self.summary = Facts(lambda values: self._tell_facts(summary=values))
        self._step = 0
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
            kept = {name: value if type(value) is float else self._kept(name, value) for name, value in values.items()}
            if any(type(value) is dict or value is None for value in kept.values()):
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
        except (TypeError, ValueError):
            self._say_once(f"{name} is not a number ({kind.__name__}): it is not recorded")
            return None

    def evaluation(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Reports an evaluation after a step, the last one unless given; `loss` becomes `test/loss`."""
        self.log({name if "/" in name else f"test/{name}": value for name, value in values.items()}, step or self._step)

    def should_stop(self) -> bool:
        """Whether to end training before the next step: somebody has asked the run to stop.

        Call it once per step on every rank, or on none but one: all that call it get the same answer for the same call.
        """
        if self.finished:
            return False
        self._asked += 1
        self._agree(self._asked)
        return not self._client.gate.enter(self._asked)

    def should_checkpoint(self) -> bool:
        """Whether to save a checkpoint now: somebody has asked for one. Once per step, before `should_stop`."""
        if self.finished:
            return False
        self._asked_to_save += 1
        self._agree(self._asked_to_save)
        return bool(self._client.gate.saves_before(self._asked_to_save))

    def _agree(self, asked: int) -> None:
        if asked == 1 and self._asked + self._asked_to_save == 1:
            from trainers.runtime.wire import Agrees

            self._client.backlog.append(Agrees(self._client.rank))

    def checkpoint(self, path: str | os.PathLike[str], step: int | None = None) -> None:
        """Reports a checkpoint that the script has saved, a file or a directory."""
        with suppress(Exception):
            if not self.finished:
                from trainers.contract.events import Checkpoint

                size = _size(Path(path))
                at = self._step if step is None else int(step)
                self._client.backlog.append(Checkpoint(step=at, epoch=0.0, name=str(path), bytes=size, seconds=0.0))

    def sharding(self, name: str, array: Any) -> None:
        """Reports how an array lies on the devices: a JAX array, or a PyTorch DTensor."""
        try:
            if not self.finished:
                from trainers.runtime.layouts import layout

                self._client.backlog.extend(layout(name, array, self._client.rank))
        except Exception as error:
            self._say_once(f"sharding of {name}: {type(error).__name__}: {error}")

    def finish(self, exit_code: int = 0, **_: Any) -> None:
        """Ends the run; called at exit, and at the end of a `with` block. A run that is not finished has failed."""
        if self.finished:
            return
        self.finished = True
        self.log = _ignore  # type: ignore[method-assign]
        with suppress(Exception):
            from trainers.contract.events import Phase
            from trainers.runtime.jobs import set_reports
            from trainers.runtime.wire import Failed, Leaves

            set_reports(None)
            rank = self._client.rank
            if self._asked or self._asked_to_save:
                self._client.backlog.append(Leaves(rank, self._client.gate.started))
            self._client.backlog.append(
                Failed(rank, exit_code, self._error) if exit_code else Phase(rank=rank, phase="done")
            )
            self._client.close()

    def fail(self, error: BaseException) -> None:
        """Ends the run as failed, with the exception's traceback."""
        if not self.finished and self.directory is not None:
            with suppress(Exception):
                from trainers.runtime.failures import rank_error

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
            from trainers.contract.events import StopRequested

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

    def _tell(self, config: Any, name: str, total_steps: int) -> None:
        if config is not None:
            self.config.update(config)
        if name or total_steps:
            self._tell_facts(name=str(name or ""), total_steps=int(total_steps))

    def _tell_facts(self, **facts: Any) -> None:
        if not self.finished:
            with suppress(Exception):
                from trainers.contract.events import Facts as Event

                self._client.backlog.append(Event(**{key: _plain(value) for key, value in facts.items()}))

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
    """Begins a run, or joins that of the job.

    Returns the present run if it is not finished, with `config` and `total_steps` added to it.

    Args:
        name: Shown beside the run's id.
        config: Hyperparameters: a mapping, or an object with attributes such as `argparse.Namespace`.
        total_steps: Steps until the end, for the progress bar; 0 if unknown.
        dir: Where the run directory is made; the user's runs if None. Ignored under `tuiapp run`.
        rank: This process's rank; found in the environment of torchrun, Slurm or MPI, or by torch.distributed or
            jax.distributed, if None.
        world_size: The number of ranks, as `rank`.
        mode: "disabled" reports nothing, as `TUIAPP_MODE=disabled`.
    """
    global _run
    if _run is not None and not _run.finished:
        # A cell that is run again starts a new run.
        if "ipykernel" not in sys.modules or not _run.step:
            return current(config=config, total_steps=total_steps)
        _run.finish()
    try:
        _run = _begin(name, dir, rank, world_size, mode)
        _run._tell(config, name, total_steps)
        if _.get("sync_tensorboard"):
            _run._say_once(
                "sync_tensorboard has no effect; tuiapp run SCRIPT --set tensorboard_dir=DIR charts its files"
            )
    except Exception as error:
        print(f"tuiapp: nothing is reported: {error}", file=sys.stderr)
        _run = Run()
        with suppress(Exception):
            _run.config.update(config)
    return _run


def current(name: str = "", config: Any = None, total_steps: int = 0) -> Run:
    """Returns the present run, with `config` and `total_steps` added to it; begins one if none is there."""
    if _run is None or _run.finished:
        return init(name, config, total_steps)
    with suppress(Exception):
        _run._tell(config, "", total_steps)
    return _run


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
    global _begun
    # The workers of a DataLoader import the script too, before they know that they are daemons.
    process = current_process()
    worker = rank is None and process is not None and (process.daemon or getattr(process, "_inheriting", False))
    if "disabled" in (os.environ.get("TUIAPP_MODE"), mode) or worker:
        return Run()
    from trainers.contract.rundir import RunDir, default_runs_dir
    from trainers.runtime.client import Client
    from trainers.runtime.jobs import StoppedError, find_place, find_run, set_reports

    _begun += 1
    place = find_place(rank, world_size, _begun)
    if place.inherited:
        raise RuntimeError(f"rank {place.rank} is reported by the process that started this one")
    if launched := os.environ.get("TUIAPP_RUN_DIR"):
        directory = RunDir(Path(launched))
    else:
        from trainers.launch import record

        runs_dir = Path(dir).absolute() if dir is not None else default_runs_dir()
        try:
            directory = find_run(runs_dir, place.job, lambda: record(runs_dir, place.world_size))
        except StoppedError as error:
            # What its supervisor does to the ranks that it knows.
            print(f"tuiapp: {error}: SIGTERM", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGTERM)
            raise
    client = Client(directory, place.rank, announce=not launched)
    set_reports(place)
    run = Run(client, directory.path, name)
    if launched:
        from trainers.runtime.stacks import answer_unless_handled

        answer_unless_handled(directory.rank(place.rank))
    elif place.rank == 0:
        known_as = directory.run_id if dir is None else shlex.quote(str(directory.path))
        print(f"tuiapp: to watch this run: tuiapp attach {known_as}", file=sys.stderr)
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
            _run._client.abandon()


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
    return {str(key): value for key, value in dict(values if isinstance(values, Mapping) else vars(values)).items()}


def _plain(value: Any) -> Any:
    """What JSON can hold; other values as text."""
    from trainers.runtime.client import MAX_NAME, encodable

    if isinstance(value, Mapping):
        return {encodable(key, MAX_NAME): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value[:100]]
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if not isinstance(value, str) and hasattr(value, "item") and getattr(value, "size", 0) == 1:
        return _plain(value.item())
    return encodable(value, MAX_FACT)


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0
