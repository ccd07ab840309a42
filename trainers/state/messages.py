"""Events in plain words, the same in the journal, on screen and on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from tuiapp.trainers.config.datasets import labels_of
from tuiapp.trainers.config.files import printable
from tuiapp.trainers.config.run_config import started_rate_words
from tuiapp.trainers.contract.events import (
    Blemish,
    Checkpoint,
    InitialWeights,
    Node,
    Profile,
    Queued,
    RankFailed,
    Replicas,
    RunStarted,
    Summary,
)
from tuiapp.trainers.contract.metrics import accuracy_percent
from tuiapp.trainers.state.signs import BLEMISH
from tuiapp.trainers.state.text import (
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
    join_words,
    plural,
    sanitize,
    sanitize_lines,
)

_HINTS = {
    "SIGKILL": " — the kernel's out-of-memory killer?",
    "SIGSEGV": " — a crash in native code; its stacks are in stderr.log",
    "SIGBUS": " — is /dev/shm, or the disk under a memory-mapped file, full?",
    "SIGABRT": " — native code aborted; see stderr.log",
}

_MEMORY = "memory"
_LESS_MEMORY = {
    "preparing": "the model and the data alone do not fit",
    "compiling": "with a smaller global_batch_size a step needs less memory",
    "training": "with a smaller global_batch_size a step needs less memory",
    "evaluating": "with a smaller global_batch_size an evaluation needs less memory",
}
"""Phase → the advice that stands as `_MEMORY` in `_ADVICE`. A script has neither the phase nor the key."""
_DOING = ("compiling", "evaluating", "checkpointing", "profiling")
"""Phases beside training that are worth a word."""

_WHERE = "CUDA_LAUNCH_BLOCKING=1 in the environment shows where"
_ADVICE = [
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (
            # The two libraries take their own memory, and name its lack differently.
            r"MemoryError|RESOURCE_EXHAUSTED|out of memory|(CUBLAS|CUDNN)_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)",
            _MEMORY,
        ),
        (
            r"EOFError: EOF when reading a line|\bBdbQuit\b|getpass\.py EOFError|^termios\.error|^Aborted[.!]$"
            r"|click\.exceptions\.Abort$",
            "a run has no keyboard: whatever asks, or is a debugger, gets no answer",
        ),
        (r"device-side assert", f"an index, such as a label, is out of its range; {_WHERE}"),
        (r"illegal memory access", f"a kernel read or wrote outside its arrays; {_WHERE}"),
        (r"no kernel image", "this build of the framework has no code for this GPU: see tuiapp doctor"),
        (
            r"driver version is insufficient|driver on your system is too old",
            "update the driver, or install a build for the one that is there: see tuiapp doctor",
        ),
        (
            r"devices?\(?s?\)? is/are busy|device is busy|busy or unavailable",
            "another process has the GPU for itself: wait for it, or set its compute mode to default (nvidia-smi -c 0)",
        ),
        (r"unhandled (cuda|system) error", "NCCL_DEBUG=WARN in the environment shows why"),
    )
]
"""What an exception's line says → what to do."""

MAX_ERROR_CHARACTERS = 300


def describe_place(begun: RunStarted) -> str:
    """Returns the Slurm job of a run, and which node of several it is; "" for neither."""
    job = f"Slurm job {begun.job}" if begun.job else ""
    node = f"node {begun.part[0]} of {begun.part[1]}, counted from 0" if begun.part else ""
    return ", ".join(filter(None, (job, node)))


def describe_alone(begun: RunStarted | None, awaited: int = 0) -> str:
    """Says what a stop of a run does not end; "" if it ends all ranks of its job.

    `awaited` nodes have not joined it: they may have runs of their own, if somebody else has started its ranks.
    """
    if begun is not None and begun.part is not None:
        node = begun.part[0]
        return f"A stop ends the ranks of node {node} alone: those of the job's other nodes are runs of their own."
    if begun is not None and awaited and begun.config.get("launcher") == "local":
        missing = f"{plural(awaited, 'node')} of the job {'has' if awaited == 1 else 'have'} not joined it"
        return f"A stop ends the ranks alone that report to this run: {missing}."
    return ""


def describe_result(summary: Summary) -> str:
    """Returns what a run came to: the accuracy of its last evaluation, or else its loss, or else that of training."""
    evaluated_on = sanitize(summary.evaluated_on, 30)
    if summary.test_accuracy is not None:
        return f"{evaluated_on} accuracy {accuracy_percent(summary.test_accuracy):.1f} %"
    if summary.test_loss is not None:
        return f"{evaluated_on} loss {summary.test_loss:.4g}"
    return f"loss {summary.loss:.4g}" if summary.loss is not None else ""


def describe_blemishes(blemishes: Iterable[Blemish]) -> str:
    """Says what mars a run, in one line with its sign; "" for nothing."""
    text = join_words(sanitize(blemish.text, 200) for blemish in blemishes)
    return f"{BLEMISH} {text}" if text else ""


def describe_failure(failure: RankFailed) -> str:
    """Says how a rank ended, in one sentence of bounded length; may quote the rank's exception."""
    # Bytes of a path that are no text are still in the exception here; sanitizing would drop them.
    return sanitize(printable(_how_it_ended(failure)), 400)


def _how_it_ended(failure: RankFailed) -> str:
    where = f" at step {failure.step:,}" if failure.step else " before its first step" if failure.step == 0 else ""
    where += f", while {failure.phase}" if failure.phase in _DOING else ""
    who = f"rank {failure.rank} on node {failure.node}" if failure.node else f"rank {failure.rank}"
    if failure.lost:
        return f"{failure.error}; its ranks had come to step {failure.step:,}" if failure.step else failure.error
    if error := error_line(failure.error):
        after = f"; {failure.signal} ended it afterwards" if failure.signal else ""
        return f"{who} failed{where}: {error}{_advice(failure, error)}{after}"
    if failure.signal:
        hint = f" — {failure.hint}" if failure.hint else _HINTS.get(failure.signal, "")
        return f"{who} was killed by {failure.signal}{where}{hint}"
    left = f"{who} exited with code {failure.exit_code}{where}"
    # As of argparse, or of sys.exit with a text.
    last = sanitize(failure.last_lines[-1], MAX_ERROR_CHARACTERS).strip() if failure.last_lines else ""
    if last:
        return f"{left}; the last line of its stderr: {last}{_advice(failure, last)}"
    return f"{left}, {failure.hint or 'without saying why'}"


def _advice(failure: RankFailed, said: str) -> str:
    # Python's getpass says no more than EOFError.
    where = "getpass.py " if '/getpass.py", line' in failure.traceback else ""
    advice = next((advice for pattern, advice in _ADVICE if pattern.search(where + said)), "")
    if advice == _MEMORY:
        advice = _LESS_MEMORY.get(failure.phase or "", "")
    return f" — {advice}" if advice else ""


def error_line(error: str) -> str:
    """Returns the line of an exception's text that says what, of bounded length; what follows a final colon, too."""
    lines = [line for line in error.splitlines() if line.strip()]
    # A SyntaxError's own line comes after the place it points at.
    start = next((n for n, line in enumerate(lines) if not line.startswith((" ", "File "))), len(lines))
    end = start + 1
    while end < len(lines) and lines[end - 1].rstrip().endswith(":"):
        end += 1
    return " ".join(line.strip() for line in lines[start:end])[:MAX_ERROR_CHARACTERS]


def failure_lines(failure: RankFailed) -> list[str]:
    """Returns a rank's traceback or, without one, the last lines of its stderr."""
    text = failure.traceback or "\n".join(failure.last_lines)
    return sanitize_lines(text) if text else []


def describe_queued(queued: Queued) -> str:
    """Says how a run's Slurm job waits, in one line."""
    start = f"expected to start {queued.start.replace('T', ' ')}" if queued.start else ""
    if not queued.job:
        return sanitize(join_words(["waits in the queue", queued.reason, start]), 200)
    return sanitize(join_words([f"Slurm job {queued.job} is queued", queued.reason, start]), 200)


def describe_average(config: Mapping[str, object]) -> str:
    """Says that a run averages its weights, and so what is evaluated; "" if it does not."""
    decay = config.get("ema")
    return f"averaged weights ({decay:g}) are evaluated" if isinstance(decay, float) and decay else ""


def describe_start(started: RunStarted, *, process_per_device: bool) -> str:
    """Describes what started, where, with how many ranks or devices."""
    ranks = "1 rank process" if started.world_size == 1 else f"{started.world_size:,} rank processes"
    if not process_per_device:
        ranks = f"{plural(started.world_size, 'device')} in one process"
    how = "started"
    if started.attempt > 1:
        again = f"resumed from step {started.resumed_from:,}" if started.resumed_from else "started again"
        how = f"{again}, attempt {started.attempt},"
    other_nodes = f" and {plural(started.nodes - 1, 'other node')}" if started.nodes > 1 else ""
    rate = f", learning rate {text}" if (text := started_rate_words(started.config)) else ""
    mesh = f", mesh {sanitize(str(laid_out), 40)}" if (laid_out := started.config.get("mesh")) else ""
    average = f", {text}" if (text := describe_average(started.config)) else ""
    return f"run {how} on {started.host}{other_nodes}: {ranks}{mesh}{rate}{average}"


def describe_node(node: Node) -> str:
    """Says what has become of a node, in a few words."""
    phrases = {"joined": "has joined", "silent": "is not connected", "back": "is connected again", "lost": "is lost"}
    return f"node {node.node} ({sanitize(node.host, 60)}) {phrases[node.state]}"


def describe_checkpoint(checkpoint: Checkpoint) -> str:
    """Describes a committed checkpoint in a few words."""
    best = "best so far" if checkpoint.best else ""
    size = format_bytes(checkpoint.bytes)
    # A script does not say how long it took.
    seconds = format_seconds(checkpoint.seconds) if checkpoint.seconds else ""
    return join_words([f"checkpoint {sanitize(checkpoint.name, 40)}", size, seconds, best])


def describe_profile(profile: Profile) -> str:
    """Describes where the time of profiled steps went, in a line."""
    spent = sorted(profile.spent.items(), key=lambda item: -item[1])
    shares = [
        f"{sanitize(kind, 40)} {format_percent(seconds / profile.seconds)}"
        for kind, seconds in spent
        if seconds > 0.005 * profile.seconds
    ]
    steps = f"profile of {plural(profile.steps, 'step')} from {profile.step:,}"
    return join_words([steps, *shares])


def describe_replicas(replicas: Replicas) -> str:
    """Whether the devices' replicas were equal when they were compared last, in a few words."""
    if not replicas.differing:
        devices = plural(replicas.replicas, "device")
        return f"equal after step {replicas.step:,}: {plural(replicas.arrays, 'array')} on {devices}"
    ranks = [replica.rank for replica in replicas.differing]
    verb = "differs" if len(ranks) == 1 else "differ"
    array = sanitize(replicas.differing[0].array, 80)
    return f"{describe_ranks(ranks)} {verb} after step {replicas.step:,}, first in {array}"


def describe_initial(weights: InitialWeights) -> str:
    """Says what a new model began with, and what of it is frozen, in a line."""
    parts = []
    if weights.source:
        parts.append(
            f"initial weights: {weights.matched} of {plural(weights.arrays, 'array')} from {source_words(weights)}"
        )
        kinds = {"of another shape": weights.reshaped, "not there": weights.missing, "left over": weights.unused}
        parts += [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
    if weights.frozen:
        parts.append(f"frozen: {weights.frozen:,} of {weights.parameters:,} parameters")
    return sanitize(join_words(parts), 400)


def source_words(weights: InitialWeights) -> str:
    """Returns where initial weights come from: a run's id and its checkpoint, or a file's name."""
    *_, run, kind, checkpoint, name = ("", "", "", *weights.source.split("/"))
    return f"{run} {checkpoint}" if kind == "checkpoints" else name


MOST_RANKS, MOST_PLACES = 8, 3
"""Most ranks, and most of their places, that are listed; further ones are counted."""


def describe_ranks(numbers: list[int], place_of: Callable[[int], str] = lambda rank: "") -> str:
    """Returns `rank 1`, or `ranks 0, 2 and 3`.

    `place_of` returns a rank's node, which follows: `rank 9 (node 1, gpu02)`; "" on one machine.
    """
    noun = "rank" if len(numbers) == 1 else "ranks"
    places = list(dict.fromkeys(filter(None, map(place_of, numbers))))
    where = "; ".join(places[:MOST_PLACES]) + (f"; {len(places) - MOST_PLACES} more" if places[MOST_PLACES:] else "")
    return f"{noun} {listed(numbers)}{f' ({where})' if where else ''}"


def listed(what: Sequence[object]) -> str:
    """Returns `0, 2 and 3`; of many, how many more there are."""
    *shown, last = map(str, what[:MOST_RANKS])
    if len(what) > MOST_RANKS:
        return f"{', '.join([*shown, last])} and {len(what) - MOST_RANKS} more"
    return f"{', '.join(shown)} and {last}" if shown else last


def describe_rate(rate: float, config: Mapping[str, object]) -> str:
    """Formats the rate of a run of a configuration as the journal has it; of a text that of its tokens, too."""
    labels, called = labels_of(config)
    return f"{format_rate(rate)} examples/s" + (f" ({format_rate(rate * labels)} {called}/s)" if called else "")
