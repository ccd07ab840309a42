"""Makes a rank misbehave at a step: put on PYTHONPATH by tests, read by the interpreter before anything else.

TUIAPP_TEST_FAULT is `KIND:RANK:STEP`. The fault happens in the real training loop of the real rank process, where it
asks whether it may start a step.
"""

import os
import signal

_fault = os.environ.get("TUIAPP_TEST_FAULT")
if _fault and "RANK" in os.environ:
    _kind, _rank, _step = _fault.split(":")

    from trainers.runtime.reporter import Reporter

    _ask = Reporter.stop_before

    def _misbehave(self: Reporter, step: int) -> bool:
        if os.environ["RANK"] == _rank and step == int(_step):
            match _kind:
                case "raise":
                    raise ValueError("the test's own failure")
                case "exit":
                    os._exit(3)
                case "exit0":
                    os._exit(0)
                case "segv":
                    os.kill(os.getpid(), signal.SIGSEGV)
        if _kind == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return _ask(self, step)

    Reporter.stop_before = _misbehave  # type: ignore[method-assign]
