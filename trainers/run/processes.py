"""The processes that a supervisor starts: ranks, with their pipes and logs, and the reaper."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from time import monotonic

from tuiapp.trainers.config import bootstrap
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import make_private, open_own, read_end, user_cache
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.ports import ANY
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import LogLine, RankFailed
from tuiapp.trainers.contract.process_identity import identity, is_stopped
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import stacks, wire
from tuiapp.trainers.run.failures import LAST_LINES, RankError, describe_exit, is_consequence
from tuiapp.trainers.run.listener import Connection
from tuiapp.trainers.run.log_tail import LogTail
from tuiapp.trainers.run.out_of_memory import hint
from tuiapp.trainers.run.place import Place, bind_free
from tuiapp.trainers.run.script_process import (
    CLEANUP_LINES,
    CLEANUP_S,
    ELASTIC_ERROR_FILE,
    MAX_TRACEBACK_BYTES,
    ScriptStart,
    read_failure,
)
from tuiapp.trainers.run.tracebacks import TRACEBACK, crashed_at_exit, find_terminate


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules; -P keeps the working directory off the search path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def rank_environment(plan: Plan, token: str, place: Place) -> dict[str, str]:
    """The environment of all ranks of a node: torchrun's contract, and the devices.

    GPUs are chosen before any framework is imported, by UUID, because CUDA's indices are not NVML's.
    """
    config, local = plan.config, len(plan.ranks_of(place.node))
    cores = len(os.sched_getaffinity(0))
    backend = BACKENDS[config.backend]
    teams = config.devices if backend.threads_per_device and config.platform == "cpu" else local
    return {
        **({} if "TORCHINDUCTOR_CACHE_DIR" in os.environ else _torch_cache()),
        **place.interfaces(),
        **os.environ,
        "WORLD_SIZE": str(plan.processes),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(place.node),
        "GROUP_WORLD_SIZE": str(config.nodes),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        **({} if config.nodes > 1 else place.interfaces()),
        **device_environment(place.gpus, token),
        # More threads than cores make two ranks slower than one.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // teams)),
        "PYTHONUNBUFFERED": "1",
        **_allocator_environment(config),
        **(_nccl_environment() if backend.engine == "torch" else {}),
        **(_cpu_environment() if backend.engine == "torch" and config.platform == "cpu" else {}),
        **(_jax_environment(plan, place.node) if backend.engine == "jax" else {}),
        # Read when Keras is imported; otherwise it looks for TensorFlow.
        **({"KERAS_BACKEND": backend.keras_backend} if backend.keras_backend else {}),
        **{name: value for name, value in backend.environment if name not in os.environ},
    }


def device_environment(gpus: Sequence[str], token: str) -> dict[str, str]:
    """The chosen GPUs, and what marks a process as one of this run's."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        wire.TOKEN: token,
        wire.SUPERVISOR: identity(os.getpid()),
    }


def _torch_cache() -> dict[str, str]:
    """Where torch.compile caches its output: a restart clears PyTorch's default, /tmp, which stays if it cannot be."""
    kept = user_cache() / "torch"
    # PyTorch creates it on import, with the umask's mode; it holds code.
    with contextlib.suppress(OSError):
        make_private(kept)
        return {"TORCHINDUCTOR_CACHE_DIR": str(kept)} if os.access(kept, os.W_OK | os.X_OK) else {}
    return {}


def _allocator_environment(config: RunConfig) -> dict[str, str]:
    """Makes glibc keep the memory that a step frees for the next one.

    By default it returns every block of 32 MiB or more, and XLA takes one block for all of a step's temporary arrays:
    the kernel then maps and zeroes each page again. On the CPU that took half of a step of `net` at 48 examples.
    Settings the user has made are left alone.
    """
    if config.platform != "cpu" or any(
        name in ("LD_PRELOAD", "GLIBC_TUNABLES") or name.startswith("MALLOC_") for name in os.environ
    ):
        return {}
    return {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def _cpu_environment() -> dict[str, str]:
    """Silences DDP's warning about unused parameters: see `tuiapp.trainers.frameworks.torch.ranks.distribute`."""
    return {"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}


def _nccl_environment() -> dict[str, str]:
    """Has PyTorch keep its last collectives in memory, for a hang's report, and write them if NCCL's own limit ends it.

    So do newer versions by themselves; 2000 is their number.
    """
    given = os.environ.keys()
    names = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    kept = {} if given & set(names) else {names[0]: "2000"}
    return kept | ({} if "TORCH_NCCL_DUMP_ON_TIMEOUT" in given else {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"})


def _jax_environment(plan: Plan, node: int) -> dict[str, str]:
    if plan.config.platform == "cuda":
        fraction = plan.jax_memory_fraction
        return {"JAX_PLATFORMS": "cuda", **({} if fraction is None else {"XLA_CLIENT_MEM_FRACTION": str(fraction)})}
    flags = [os.environ.get("XLA_FLAGS", "")]
    if plan.config.devices > 1 and "xla_cpu_multi_thread_eigen" not in flags[0]:
        # Devices that wait for each other in a collective hold threads of the pool that Eigen would split a single
        # device's arithmetic over: with too few left, none makes progress, and XLA aborts after 40 s.
        flags.append("--xla_cpu_multi_thread_eigen=false")
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(plan.devices_of(node)),
        "XLA_FLAGS": " ".join(flags).strip(),
    }


class RankProcess:
    """One rank, started by the constructor in its own session; rank 0 inherits `store`, the rendezvous socket.

    `rank` is the first that it reports for, `process` its number among all rank processes, torchrun's RANK.

    `interpreter` runs it; "" is our own. With `script` it is a rank of the user's own script, which knows nothing of
    the pipes: they have ended at once.

    Raises OSError if it cannot be started; nothing is left behind.
    """

    def __init__(
        self,
        run: RunDir,
        rank: int,
        environment: Mapping[str, str],
        store: socket.socket | None,
        interpreter: str = "",
        script: ScriptStart | None = None,
        process: int = 0,
        local_rank: int = 0,
    ) -> None:
        self.rank = rank
        self.directory = run.rank(rank)
        self._script = script
        # What an earlier attempt left is not this one's.
        for name in (ELASTIC_ERROR_FILE, stacks.FILE, stacks.COLLECTIVES_FILE):
            (self.directory / name).unlink(missing_ok=True)
        self.tails = [
            LogTail(self.directory / "stdout.log", rank, "stdout"),
            LogTail(self.directory / "stderr.log", rank, "stderr"),
        ]
        with ExitStack() as ours, ExitStack() as theirs:
            events_fd, events_write = _pipe(ours, theirs)
            control_read, self._control_fd = _pipe(theirs, ours)
            os.set_blocking(events_fd, False)
            os.set_blocking(self._control_fd, False)
            own = {
                "RANK": str(process),
                "LOCAL_RANK": str(local_rank),
                wire.EVENTS_FD: str(events_write),
                wire.CONTROL_FD: str(control_read),
            }
            passed = [events_write, control_read]
            if store is not None:
                own[wire.STORE_FD] = str(store.fileno())
                passed.append(store.fileno())
            if script is None:
                # The newer name, and that of before PyTorch 2.9. By default it is a directory of all runs.
                if not environment.keys() & {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}:
                    own["TORCH_FR_DUMP_TEMP_FILE"] = str(self.directory / "flight-recorder-")
                if interpreter not in ("", sys.executable):
                    own[wire.PYTHON] = sys.executable
                command = bootstrap.command(
                    interpreter or sys.executable, "tuiapp.trainers.rank.process", str(run.path), str(rank)
                )
                self._process = self._start(command, {**environment, **own}, passed)
            else:
                own = script.environment(process, local_rank, self.directory, environment)
                self._process = self._start(script.command, own, [], script.working_directory)
            self.pid = self._process.pid
            try:
                self.exit_fd = os.pidfd_open(self.pid)
                """Readable once the process has ended."""
            except OSError:
                self._process.kill()
                self._process.wait()
                raise
            ours.pop_all()
            # Only the rank holds the other ends now: its death is the end of the pipe.
        self.messages = wire.rank_messages(events_fd)
        self.done = False
        self.error: RankError | None = None
        """As it has reported it."""
        self._raised_at: float | None = None
        """When it printed its last traceback."""
        self._reports = self._said_before = 0
        """Batches of metrics; and all that it had reported and written when it printed that."""
        self.connection: Connection | None = None
        """By which a script's rank reports."""
        self.agrees = True

    def _start(
        self, command: list[str], environment: dict[str, str], passed: list[int], directory: str | None = None
    ) -> subprocess.Popen[bytes]:
        with open_own(self.directory / "stdout.log", "ab") as out, open_own(self.directory / "stderr.log", "ab") as err:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                pass_fds=passed,
                start_new_session=True,
                cwd=directory,
            )

    def wait(self) -> None:
        """Collects its exit status; returns at once if `exit_fd` is readable."""
        self._process.wait()

    def send(self, message: wire.ToRank) -> None:
        """Sends a message; does not wait for a rank that is gone or does not read."""
        try:
            os.write(self._control_fd, wire.encode(message))
        except OSError:
            return

    def kill(self, number: signal.Signals) -> None:
        """Signals its whole session, stopped processes included; of a script SIGTERM goes to the rank alone."""
        if self._process.poll() is None:
            if self._script and number == signal.SIGTERM:
                # As torchrun does: a script that finishes its step needs the workers that load its data.
                self._process.send_signal(number)
                number = signal.SIGCONT
            # A rank in a Slurm job ignores SIGTERM.
            for one in (number, *([signal.SIGHUP] if number == signal.SIGTERM else []), signal.SIGCONT):
                try:
                    os.killpg(self.pid, one)
                except ProcessLookupError:
                    return

    def ask_stacks(self) -> bool:
        """Has it write its Python stacks, and its collectives if it knows them; False if it would not."""
        if self._script is not None:
            return stacks.ask(self.connection.pid if self.connection else self.pid)
        self.send(wire.TellStacks())
        return stacks.answers(self.pid)

    def is_stopped(self) -> bool:
        return is_stopped(self.pid)

    def new_lines(self, *, final: bool = False) -> list[LogLine]:
        lines = [line for tail in self.tails for line in tail.poll(final=final)]
        if any(TRACEBACK in line.text for line in lines):
            self._raised_at, self._said_before = monotonic(), self._said()
        return lines

    def note_metrics(self) -> None:
        self._reports += 1

    def _said(self) -> int:
        return self._reports + sum(tail.written for tail in self.tails)

    def failure(self, oom_killed: Callable[[], bool | None]) -> tuple[RankFailed, bool] | None:
        """Describes its failure, and whether it looks like a consequence of another; None if it did not fail.

        Call once it has ended and its logs were read to their end. `oom_killed`: whether the OOM killer was active.
        """
        returncode = self._process.returncode
        if returncode == 0 and (self.done or self._script):
            return None
        exit_code, signal_name = describe_exit(returncode)
        killed = oom_killed() if signal_name == "SIGKILL" else None
        record = self._script_error(exit_code) if self._script and not killed else self.error
        failed = RankFailed(
            rank=self.rank,
            exit_code=exit_code,
            signal=signal_name,
            hint=hint(killed) if signal_name == "SIGKILL" else self._why_silent(),
            error=record.error if record else "",
            traceback=record.traceback if record else "",
            last_lines=list(self.tails[1].last_lines)[-LAST_LINES:],
            step=None if self._script else 0,
            mono=record.mono if record else monotonic(),
        )
        return failed, bool(record and record.consequence)

    def _why_silent(self) -> str:
        with contextlib.suppress(OSError):
            disk = os.statvfs(self.directory)
            if disk.f_blocks and not disk.f_bavail:
                return f"and what it said is lost: no space is left for its logs in {self.directory}"
        return ""

    def _script_error(self, exit_code: int | None) -> RankError | None:
        # Python exits with 1 after an exception; any other code is the script's own, whatever it wrote before.
        if exit_code not in (1, None):
            return None
        ended_by_signal = exit_code is None
        began = [tail.began for tail in self.tails]
        said = read_failure(self.directory, *began) if not ended_by_signal or self._was_ending() else None
        if said is None and ended_by_signal:
            said = find_terminate(self._errors())
        if said is None:
            return None
        mono = self._raised_at or monotonic()
        return RankError(mono=mono, error=said.error, traceback=said.traceback, consequence=is_consequence(said.error))

    def _was_ending(self) -> bool:
        """Whether a signal came while the script ended after an exception, not after one that it had caught."""
        if self._raised_at is None:
            return False
        at_exit = crashed_at_exit(self._errors())
        if at_exit is not None:
            return at_exit
        return self._said() - self._said_before <= CLEANUP_LINES and monotonic() - self._raised_at <= CLEANUP_S

    def _errors(self) -> str:
        return read_end(self.directory / "stderr.log", self.tails[1].began, MAX_TRACEBACK_BYTES)

    def close(self) -> None:
        for fd in (self.messages.fd, self._control_fd, self.exit_fd):
            os.close(fd)


def start_reaper(run: RunDir, token: str, *, notify: bool = True) -> subprocess.Popen[bytes]:
    """Starts the process that ends this node's ranks if this process dies; with `notify` it sends the user's notice."""
    with open_own(run.supervisor_log, "ab") as log:
        return subprocess.Popen(
            python("tuiapp.trainers.run.reaper", str(os.getpid()), token, *([str(run.path)] if notify else [])),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def bind_rendezvous(address: str, ports: range = ANY) -> socket.socket:
    """Returns a listening socket on a free one of the ports, to be passed to rank 0; raises OSError."""
    listener = bind_free(address, ports)
    listener.listen(1024)
    return listener


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends
