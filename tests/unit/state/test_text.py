"""Times, sizes, states and failures in words, and stacks of many ranks."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.kit import histories as h
from tests.kit.hostile import WIRE, harm_in
from tuiapp.trainers.contract.events import PhaseName, RankFailed, Stacks
from tuiapp.trainers.state import text
from tuiapp.trainers.state.messages import describe_failure, describe_ranks, describe_result
from tuiapp.trainers.state.signs import SYMBOLS, Condition
from tuiapp.widgets.failure_panel import group_stacks


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("plain", "plain"),
        ("a\tb", "a    b"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;aGVsbG8=\x07copied", "copied"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1bP1$r q\x1b\\x", "x"),
        ("\x9b31mc1", "c1"),
        ("\x9d0;t\x9cy", "y"),
        ("\x1b]never closed", ""),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("a\x1b(Bb", "ab"),
        ("bell\x07 null\x00 del\x7f", "bell null del"),
        ("abc\u202egnp.exe\u202c", "abcgnp.exe"),
        ("\u2066x\u2069\u200b\ufeff\u061c", "x"),
        ("lone \ud89b surrogate", "lone  surrogate"),
        ("Andr\udce9", r"Andr\xe9"),
        ("two\nlines\u2028three", "two lines three"),
        (" 10%|#  |\r 50%|## |\r100%|###|", "100%|###|"),
        ("progress\r", "progress"),
        ("\r\r", ""),
        ("[@click=app.exit]x[/]", "[@click=app.exit]x[/]"),
        ("日本 é", "日本 é"),
        # Some terminals give a sign two cells where it is asked for as a picture, others one.
        ("GLHF! 🏖\ufe0f", "GLHF! 🏖"),
    ],
)
def test_sanitize(hostile: str, harmless: str) -> None:
    assert text.sanitize(hostile) == harmless


HOSTILE = st.text(
    st.characters(exclude_categories=["Cn"]) | st.sampled_from("\x1b\x9b\x9d[]P;m\\\x07\r\n\t\u202e\ufe0f\udc9b"),
    max_size=80,
)


@given(HOSTILE, st.integers(1, 60))
def test_nothing_that_is_sanitized_affects_a_terminal(hostile: str, limit: int) -> None:
    harmless = text.sanitize(hostile, limit)
    assert len(harmless) <= limit
    assert not {unicodedata.category(character) for character in harmless} & {"Cc", "Cs", "Zl", "Zp"}
    assert not set(harmless) & set("\u200b\u200e\u202a\u202e\u2066\ufe0f\ufeff\U000e0041")
    assert text.sanitize(harmless, limit) == harmless
    if hostile.isascii() and hostile.isprintable() and len(hostile) <= limit:
        assert harmless == hostile


@given(st.lists(HOSTILE).map("\n".join), st.integers(3, 20))
def test_many_lines_are_as_many_harmless_ones(hostile: str, limit: int) -> None:
    lines = text.sanitize_lines(hostile, limit)
    assert len(lines) <= limit
    assert all(text.sanitize(line) == line for line in lines)


def test_sanitize_is_bounded_and_quick() -> None:
    assert text.sanitize("x" * 10_000, 50) == "x" * 49 + "…"
    # Must not take time that grows with the square of the length.
    text.sanitize("\x1b]" * 500_000)
    text.sanitize("\x1b[" * 500_000)
    text.sanitize("\r" * 500_000)


def test_sanitize_lines_keeps_both_ends() -> None:
    lines = text.sanitize_lines("\n".join(str(n) for n in range(1000)), limit=11)
    assert len(lines) == 11
    assert lines[0] == "0"
    assert lines[-1] == "999"
    assert lines[5] == "… 990 lines omitted …"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (math.inf, "–"),
        (-3, "0s"),
        (4.9, "4s"),
        (63, "1m 03s"),
        (7500, "2h 05m"),
        (3 * 86400 + 4 * 3600, "3d 04h"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert text.format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (401_408, "392 KiB"), (31.2 * 2**30, "31.2 GiB"), (2**40, "1.00 TiB")],
)
def test_bytes(count: float | None, shown: str) -> None:
    assert text.format_bytes(count) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (math.nan, "NaN"),
        (-math.inf, "−inf"),
        (0, "0.0000"),
        (0.41234, "0.4123"),
        (2.3456, "2.346"),
        (1.5e-6, "1.5e-06"),
        (123456, "1.2e+05"),
    ],
)
def test_metrics_are_at_most_seven_wide(value: float | None, shown: str) -> None:
    assert text.format_metric(value) == shown
    assert len(shown) <= 7


def test_ranges_of_numbers() -> None:
    assert text.format_ranges([7]) == "7"
    assert text.format_ranges([*range(32), 33, 35, 36]) == "0–31, 33, 35–36"
    assert text.format_ranges(range(0, 30, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 7 more"


def test_bars_have_their_width() -> None:
    assert text.bar(0.5, 4) == "██  "
    assert text.bar(None, 3) == "   "
    assert text.bar(7.0, 3) == "███"
    assert len(text.bar(0.33, 10)) == 10
    assert text.sparkline([0.0, 50.0, None, 100.0], 6, 100.0) == "  ▁▅ █"


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ("net", "net"),
        ("py:/home/me/net.py:Net", "net.py:Net"),
        ("py:net.py:Net", "net.py:Net"),
        ("npz:/data/a:b.npz", "npz:a:b.npz"),
        ("npz:mine.npz", "npz:mine.npz"),
    ],
)
def test_a_value_without_directories(value: str, short: str) -> None:
    assert text.without_directories(value) == short


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (
            RankFailed(rank=1, signal="SIGKILL", step=1234),
            "rank 1 was killed by SIGKILL at step 1,234 — the kernel's out-of-memory killer?",
        ),
        (
            RankFailed(rank=0, signal="SIGSEGV"),
            "rank 0 was killed by SIGSEGV before its first step — a crash in native code; its stacks are in stderr.log",
        ),
        (RankFailed(rank=0, signal="SIGUSR2", step=1), "rank 0 was killed by SIGUSR2 at step 1"),
        (RankFailed(rank=9, node=1, signal="SIGUSR2", step=1), "rank 9 on node 1 was killed by SIGUSR2 at step 1"),
        (
            RankFailed(rank=2, exit_code=1, error="ValueError: no\nsecond line", step=7),
            "rank 2 failed at step 7: ValueError: no",
        ),
        (RankFailed(rank=0, exit_code=3), "rank 0 exited with code 3 before its first step, without saying why"),
        (RankFailed(rank=0, exit_code=0), "rank 0 exited with code 0 before its first step, without saying why"),
        (
            RankFailed(rank=0, exit_code=2, step=None, last_lines=["usage: train.py", "train.py: error: no --lr"]),
            "rank 0 exited with code 2; the last line of its stderr: train.py: error: no --lr",
        ),
        (
            RankFailed(rank=0, exit_code=1, error="\n"),
            "rank 0 exited with code 1 before its first step, without saying why",
        ),
        (
            RankFailed(
                rank=0, exit_code=1, error='File "a.py", line 1\n    1 +\n       ^\nSyntaxError: invalid syntax'
            ),
            "rank 0 failed before its first step: SyntaxError: invalid syntax",
        ),
        (
            RankFailed(rank=0, signal="SIGABRT", error="ValueError: bad shard 3", step=None),
            "rank 0 failed: ValueError: bad shard 3; SIGABRT ended it afterwards",
        ),
        (
            RankFailed(rank=0, exit_code=1, error="RuntimeError: Error(s) in loading:\n\tMissing key(s)\n\tmore"),
            "rank 0 failed before its first step: RuntimeError: Error(s) in loading: Missing key(s)",
        ),
        (
            RankFailed(rank=0, exit_code=1, error="OSError: no file at:"),
            "rank 0 failed before its first step: OSError: no file at:",
        ),
    ],
)
def test_how_a_rank_ended(failure: RankFailed, words: str) -> None:
    assert describe_failure(failure) == words


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "needs less memory"),
        ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "needs less memory"),
        ("CUDA error: device-side assert triggered", "such as a label, is out of its range; CUDA_LAUNCH_BLOCKING=1"),
        ("CUDA error: an illegal memory access was encountered", "outside its arrays; CUDA_LAUNCH_BLOCKING=1"),
        ("CUDA error: no kernel image is available for execution on the device", "see tuiapp doctor"),
        ("The NVIDIA driver on your system is too old (found version 11040).", "update the driver"),
        ("INTERNAL: CUDA driver version is insufficient for CUDA runtime version", "update the driver"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "has the GPU for itself"),
        ("NCCL error in: NCCLUtils.cpp:77, unhandled system error", "NCCL_DEBUG=WARN"),
    ],
)
def test_what_to_do_about_an_error_of_cuda(error: str, advice: str) -> None:
    failure = RankFailed(rank=0, exit_code=1, error=f"RuntimeError: {error}", step=3, phase="training")
    said = describe_failure(failure)
    assert said.startswith(f"rank 0 failed at step 3: RuntimeError: {error} — ")
    assert advice in said


@pytest.mark.parametrize(
    ("step", "phase", "words"),
    [
        (0, "preparing", " before its first step: {} — the model and the data alone do not fit"),
        (
            0,
            "compiling",
            " before its first step, while compiling: {} — with a smaller global_batch_size a step needs less memory",
        ),
        (3, "training", " at step 3: {} — with a smaller global_batch_size a step needs less memory"),
        (
            3,
            "evaluating",
            " at step 3, while evaluating: {} — with a smaller global_batch_size an evaluation needs less memory",
        ),
        (3, "checkpointing", " at step 3, while checkpointing: {}"),
        # A script has no such key.
        (3, None, " at step 3: {}"),
    ],
)
def test_memory_that_ran_out_names_the_phase(step: int, phase: PhaseName | None, words: str) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    failure = RankFailed(rank=0, exit_code=1, error=error, step=step, phase=phase)
    assert describe_failure(failure) == "rank 0 failed" + words.format(error)


KEYBOARD = "a run has no keyboard"


@pytest.mark.parametrize(
    ("failure", "asked"),
    [
        (RankFailed(rank=0, error="EOFError: EOF when reading a line"), True),
        (RankFailed(rank=0, error="bdb.BdbQuit"), True),
        (RankFailed(rank=0, error="EOFError", traceback='  File "/lib/getpass.py", line 148, in _raw_input'), True),
        (RankFailed(rank=0, error="termios.error: (25, 'Inappropriate ioctl for device')"), True),
        (RankFailed(rank=0, error="click.exceptions.Abort"), True),
        (RankFailed(rank=0, exit_code=1, last_lines=["Aborted!"]), True),
        (RankFailed(rank=0, error="EOFError: Ran out of input"), False),
        (RankFailed(rank=0, error="EOFError", traceback='  File "/lib/connection.py", line 1, in recv'), False),
        (RankFailed(rank=0, exit_code=1, last_lines=["Aborted after 3 epochs"]), False),
    ],
)
def test_what_asks_is_told_that_a_run_has_no_keyboard(failure: RankFailed, asked: bool) -> None:
    assert (KEYBOARD in describe_failure(failure)) is asked


def test_long_errors_stay_one_short_sentence() -> None:
    assert len(describe_failure(RankFailed(rank=0, exit_code=1, error="E: " + "x" * 100_000))) < 400


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([9], "rank 9 (node 1)"),
        ([8, 9], "ranks 8 and 9 (node 1)"),
        ([0, 9], "ranks 0 and 9 (node 0; node 1)"),
        (list(range(0, 80, 8)), "ranks 0, 8, 16, 24, 32, 40, 48, 56 and 2 more (node 0; node 1; node 2; 7 more)"),
    ],
)
def test_ranks_with_their_nodes(ranks: list[int], words: str) -> None:
    assert describe_ranks(ranks, lambda rank: f"node {rank // 8}") == words


def test_what_a_script_evaluates_on_cannot_speak_to_the_terminal() -> None:
    summary = replace(h.ended("completed", 9).summary, evaluated_on=WIRE, test_loss=0.5, test_accuracy=0.9)
    for one in (summary, replace(summary, test_accuracy=None)):
        assert not harm_in(describe_result(one))


WAITS = """  File "/venv/torch/distributed_c10d.py", line 2810 in all_reduce
  File "/home/ada/train.py", line 9 in step"""
LOADS = """  File "/home/ada/data.py", line 21 in load
  File "/home/ada/train.py", line 7 in step"""


def stacks(rank: int, main: str, other: str = "") -> Stacks:
    """As `faulthandler` writes them: no two processes have threads of the same address."""
    beside = f"Thread 0x{rank:016x} (most recent call first):\n{other}\n\n" if other else ""
    return Stacks(
        rank=rank, pid=1000 + rank, text=f"{beside}Current thread 0x{rank:016x} (most recent call first):\n{main}"
    )


def test_ranks_at_the_same_call_are_one_group_after_the_odd_ones() -> None:
    found = group_stacks({rank: stacks(rank, LOADS if rank in (32, 40) else WAITS) for rank in range(512)})
    assert [group.ranks for group in found] == [[32, 40], [rank for rank in range(512) if rank not in (32, 40)]]
    assert found[0].main == LOADS.splitlines()
    assert found[1].main == WAITS.splitlines()


def test_the_rank_that_a_hang_names_comes_first() -> None:
    found = group_stacks({rank: stacks(rank, LOADS if rank == 0 else WAITS) for rank in range(4)}, first=2)
    assert [group.ranks for group in found] == [[1, 2, 3], [0]]


def test_other_threads_do_not_separate_ranks() -> None:
    """A reporter or a data loader is at another call in each."""
    lines = [f'  File "/venv/threading.py", line {line} in wait' for line in (3, 4)]
    (group,) = group_stacks({rank: stacks(rank, WAITS, line) for rank, line in enumerate(lines)})
    assert group.ranks == [0, 1]
    assert group.main == WAITS.splitlines()
    assert group.others[1:] == [lines[0]]


def test_what_is_no_list_of_threads_is_shown_whole() -> None:
    (group,) = group_stacks({0: Stacks(rank=0, pid=1, text="<no Python frame>")})
    assert (group.main, group.others) == (["<no Python frame>"], [])


TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@given(TEXT, TEXT, st.sampled_from(sorted(SYMBOLS)), st.sampled_from(["", "✓"]), st.integers(0, 40))
@example("training", "train", "good", "", len("● training"))
@example("training", "train", "good", "", len("● training") - 1)
def test_a_condition_is_whole_exactly_where_there_is_room(
    text: str, word: str, severity: str, sign: str, room: int
) -> None:
    condition = Condition(text, severity, sign, word)  # type: ignore[arg-type]
    whole, shown = str(condition), condition.within(room)
    assert whole == f"{sign or SYMBOLS[severity]} {text}"  # type: ignore[index]
    assert shown == (whole if len(whole) <= room else f"{condition.symbol} {word}")
