"""The processes that a supervisor starts: ranks, with their pipes and logs; the reaper."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from time import monotonic
from typing import IO

from platformdirs import user_cache_path

from trainers.config.catalog import BACKENDS
from trainers.config.files import make_private
from trainers.config.run_config import RunConfig
from trainers.contract.events import LogLine, RankFailed
from trainers.contract.process_identity import identity
from trainers.contract.rundir import RunDir
from trainers.runtime import wire
from trainers.runtime.failures import ERROR_FILE, LAST_LINES, describe_exit, read_error
from trainers.runtime.log_tail import LogTail
from trainers.runtime.out_of_memory import hint


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules; -P keeps the working directory out of the search path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def rank_environment(config: RunConfig, token: str, port: int, world_size: int) -> dict[str, str]:
    """What all ranks' processes find in their environment: torchrun's contract, and the devices.

    GPUs are chosen before any framework is imported, by UUID, because CUDA's indices are not NVML's.

    Args:
        config: The run's.
        token: Marks its processes.
        port: Of the rendezvous socket.
        world_size: Rank processes.
    """
    cores = len(os.sched_getaffinity(0))
    backend = BACKENDS[config.backend]
    return {
        **({"TORCHINDUCTOR_CACHE_DIR": _torch_cache()} if "TORCHINDUCTOR_CACHE_DIR" not in os.environ else {}),
        **os.environ,
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # One machine: nothing needs to listen on, or go over, another interface.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(config.device_ids),
        # More threads than cores make two ranks slower than one.
        "OMP_NUM_THREADS": str(max(1, cores // world_size)),
        "PYTHONUNBUFFERED": "1",
        wire.TOKEN: token,
        **_allocator_environment(config),
        wire.SUPERVISOR: identity(os.getpid()),
        **(_jax_environment(config) if "jax" in backend.packages else {}),
        # Read when Keras is imported; without it Keras looks for TensorFlow.
        **({"KERAS_BACKEND": backend.keras_backend} if backend.keras_backend else {}),
    }


def _torch_cache() -> str:
    """Where what torch.compile made is read the next time; PyTorch's own place for it, /tmp, a restart clears."""
    kept = user_cache_path("tuiapp") / "torch"
    # PyTorch makes it when it is imported, as the umask says; it holds code. Where it cannot be made PyTorch says so.
    with contextlib.suppress(OSError):
        make_private(kept)
    return str(kept)


def _allocator_environment(config: RunConfig) -> dict[str, str]:
    """What has glibc keep the memory that a step frees for the next one.

    By default it gives back every block of 32 MiB or more, and XLA takes one block for all of a step's temporary
    arrays: the next step then has each of its pages made and zeroed by the kernel again. On the CPU that took half of
    a step of `net` at 48 examples. Whoever tunes the allocator, or brings another one, knows better.
    """
    if config.platform != "cpu" or any(
        name in ("LD_PRELOAD", "GLIBC_TUNABLES") or name.startswith("MALLOC_") for name in os.environ
    ):
        return {}
    return {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def _jax_environment(config: RunConfig) -> dict[str, str]:
    """What JAX reads when it is imported."""
    if config.platform == "cuda":
        return {"JAX_PLATFORMS": "cuda"}
    flags = [os.environ.get("XLA_FLAGS", "")]
    if config.devices > 1:
        # Devices that wait for each other in a collective hold threads of the pool that Eigen would split a single
        # device's arithmetic over: with too few left, none goes on, and XLA aborts after 40 s.
        flags.append("--xla_cpu_multi_thread_eigen=false")
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(config.devices),
        "XLA_FLAGS": " ".join(flags).strip(),
    }


class RankProcess:
    """One rank: started by the constructor, in a session of its own.

    Args:
        run: Its run.
        rank: Its number.
        environment: From `rank_environment`.
        store: The rendezvous socket, which rank 0 inherits.

    Raises:
        OSError: it cannot be started; nothing of it is left.
    """

    def __init__(self, run: RunDir, rank: int, environment: Mapping[str, str], store: socket.socket) -> None:
        self.rank = rank
        self.directory = run.rank(rank)
        # What an earlier attempt failed of is not this one's failure.
        (self.directory / ERROR_FILE).unlink(missing_ok=True)
        self._tails = [
            LogTail(self.directory / "stdout.log", rank, "stdout"),
            LogTail(self.directory / "stderr.log", rank, "stderr"),
        ]
        with ExitStack() as ours, ExitStack() as theirs:
            events_fd, events_write = _pipe(ours, theirs)
            control_read, self._control_fd = _pipe(theirs, ours)
            os.set_blocking(events_fd, False)
            os.set_blocking(self._control_fd, False)
            own = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                wire.EVENTS_FD: str(events_write),
                wire.CONTROL_FD: str(control_read),
            }
            passed = [events_write, control_read]
            if rank == 0:
                own[wire.STORE_FD] = str(store.fileno())
                passed.append(store.fileno())
            command = python("trainers.runtime.rank", str(run.path), str(rank))
            self._process = self._start(command, {**environment, **own}, passed)
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
        """It has said that it went through all it had to do."""

    def _start(self, command: list[str], environment: dict[str, str], passed: list[int]) -> subprocess.Popen[bytes]:
        with _append(self.directory / "stdout.log") as out, _append(self.directory / "stderr.log") as err:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                pass_fds=passed,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Collect its exit status; returns at once when `exit_fd` is readable."""
        self._process.wait()

    def send(self, message: wire.ToRank) -> None:
        """Tell it something; a rank that is gone or does not read is not waited for."""
        try:
            os.write(self._control_fd, wire.encode(message))
        except OSError:
            return

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to its whole session, stopped processes included."""
        if self._process.poll() is None:
            for one in (number, signal.SIGCONT):
                try:
                    os.killpg(self.pid, one)
                except ProcessLookupError:
                    return

    def new_lines(self, *, final: bool = False) -> list[LogLine]:
        """What it has written to its logs since the last call."""
        return [line for tail in self._tails for line in tail.poll(final=final)]

    def failure(self, step: int, struck: Callable[[], bool | None]) -> tuple[RankFailed, bool] | None:
        """How it failed, and whether that looks like a consequence of another failure; None if it did not.

        Call once it has ended and its logs were read to their end.

        Args:
            step: The last one it reported.
            struck: Tells whether the kernel's out-of-memory killer was at work.
        """
        returncode = self._process.returncode
        if returncode == 0 and self.done:
            return None
        exit_code, signal_name = describe_exit(returncode)
        record = read_error(self.directory / ERROR_FILE)
        failed = RankFailed(
            rank=self.rank,
            exit_code=exit_code,
            signal=signal_name,
            hint=hint(struck()) if signal_name == "SIGKILL" else "",
            error=record.error if record else "",
            traceback=record.traceback if record else "",
            last_lines=list(self._tails[1].last_lines)[-LAST_LINES:],
            step=step,
            mono=record.mono if record else monotonic(),
        )
        return failed, bool(record and record.consequence)

    def close(self) -> None:
        """Close this side's descriptors."""
        for fd in (self.messages.fd, self._control_fd, self.exit_fd):
            os.close(fd)


def start_reaper(run: RunDir, token: str) -> subprocess.Popen[bytes]:
    """Start the process that ends the ranks when this one is gone."""
    with _append(run.supervisor_log) as log:
        return subprocess.Popen(
            python("trainers.runtime.reaper", str(os.getpid()), token, str(run.path)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def bind_loopback() -> socket.socket:
    """A listening socket on loopback with a port of its own, to be handed to rank 0."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


def _append(path: os.PathLike[str]) -> IO[bytes]:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe, each of its ends closed with one of two stacks."""
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends
