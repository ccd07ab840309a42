"""Events in plain words, the same in the journal, on the screen and on the command line."""

from __future__ import annotations

from trainers.contract.events import RankFailed

_HINTS = {
    "SIGKILL": " — the kernel's out-of-memory killer?",
    "SIGSEGV": " — a crash in native code; its stacks are in stderr.log",
    "SIGBUS": " — is /dev/shm, or the disk under a memory-mapped file, full?",
    "SIGABRT": " — native code gave up; see stderr.log",
}

MAX_ERROR_CHARACTERS = 300


def describe_failure(failure: RankFailed) -> str:
    """How a rank ended, in one sentence of bounded length; may hold what the rank's exception said, as it said it."""
    where = f"at step {failure.step:,}" if failure.step else "before its first step"
    if failure.signal:
        return f"rank {failure.rank} was killed by {failure.signal} {where}{_HINTS.get(failure.signal, '')}"
    if said := _what_it_said(failure.error):
        return f"rank {failure.rank} failed {where}: {said}"
    return f"rank {failure.rank} exited with code {failure.exit_code} {where}, without saying why"


def _what_it_said(error: str) -> str:
    # A SyntaxError's own line stands below the place it points at.
    lines = [line for line in error.splitlines() if line.strip() and not line.startswith((" ", "File "))]
    return lines[0][:MAX_ERROR_CHARACTERS] if lines else ""
