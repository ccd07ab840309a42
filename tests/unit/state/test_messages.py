"""How failures are told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.kit import histories as h
from tests.kit.hostile import WIRE, harm_in
from tuiapp.trainers.contract.events import PhaseName, RankFailed
from tuiapp.trainers.state.messages import describe_failure, describe_ranks, describe_result


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
