"""Makes ranks misbehave: put on PYTHONPATH by tests, read by the interpreter before anything else.

TUIAPP_TEST_FAULT is `KIND:RANK:STEP`. The fault happens in the training loop of the real rank process, where it asks
whether it may start a step; step 0 is before anything is loaded. With TUIAPP_TEST_BACKEND=fake that loop is
`fake_backend`'s, which needs no framework.
"""

import importlib
import os
import signal
import subprocess
import sys
import time


def _eat_memory() -> None:
    import resource

    # Some more than it has by now, which depends on the machine's cores: what it fails of it must be able to say.
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + (1 << 29)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    bytearray(4 << 30)


def _block(*_: object) -> None:
    time.sleep(3600)


def _misbehave(kind: str) -> None:
    if kind.endswith("-gated"):
        _misbehave("gate")
    match kind.removesuffix("-gated"):
        case "raise":
            raise ValueError("the test's own failure")
        case "raise-blocked":
            # As NCCL's does, whose kernels wait for those of other ranks.
            setattr(importlib.import_module("torch.distributed"), "destroy_process_group", _block)  # noqa: B010
            raise ValueError("the test's own failure")
        case "exit":
            print("\n".join(f"last words {number}" for number in range(30)), file=sys.stderr, flush=True)
            os._exit(3)
        case "segv" | "kill":
            os.kill(os.getpid(), getattr(signal, f"SIG{kind.upper()}"))
        case "memory":
            _eat_memory()
        case "hog":
            # Bounded: where nothing stops it, the machine and all else on it shall live.
            held: list[bytearray] = []
            while len(held) < 64:
                held.append(bytearray(os.urandom(1 << 20) * 16))
            time.sleep(3600)
        case "hang":
            time.sleep(3600)
        case "gate":
            # Bounded: a test that was killed opens no gate.
            deadline = time.monotonic() + 600
            while not os.path.exists(os.environ["TUIAPP_TEST_GATE"]) and time.monotonic() < deadline:
                time.sleep(0.005)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "child":
            # In a session of its own, deaf to what the rank's gets.
            deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)"
            subprocess.Popen([sys.executable, "-S", "-c", deaf], start_new_session=True)


_fault = os.environ.get("TUIAPP_TEST_FAULT")
if "RANK" in os.environ and "tuiapp.trainers.rank.process" in " ".join(sys.orig_argv):
    if os.environ.get("TUIAPP_TEST_BACKEND") == "fake":
        sys.modules["tuiapp.trainers.backends.torch_ddp"] = importlib.import_module("fake_backend")
    if _witness := os.environ.get("TUIAPP_TEST_WITNESS"):
        importlib.import_module("witness").watch(_witness)
    if _fault:
        _kind, _rank, _step = _fault.split(":")
        if _step == "0" and os.environ["RANK"] == _rank:
            _misbehave(_kind)

        from tuiapp.trainers.rank.reporter import Reporter

        # "hang" is before the rank has told that it starts the step, all else after that.
        _name = "save_before" if _kind == "hang" else "stop_before"
        _ask = getattr(Reporter, _name)
        _all = _kind == "deaf" or _rank == "*"

        def _asked(self: Reporter, step: int) -> bool:
            mine = _all or os.environ["RANK"] == _rank
            if mine and step == int(_step):
                _misbehave(_kind)
            if mine and (said := _kind.removesuffix("-gated")) in ("talk", "babble"):
                importlib.import_module("printing").at_step(said, step - int(_step))
            if _kind == "deaf" and os.environ["RANK"] == _rank:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return bool(_ask(self, step))

        setattr(Reporter, _name, _asked)
elif os.environ.get("TUIAPP_TEST_SUPERVISOR") == "raise" and "tuiapp.trainers.run.supervisor" in " ".join(
    sys.orig_argv
):
    from tuiapp.trainers.run.watchdog import Watchdog

    def _fail(*_: object) -> None:
        raise RuntimeError("the test's own failure of the supervisor")

    setattr(Watchdog, "on_heartbeat", _fail)  # noqa: B010
