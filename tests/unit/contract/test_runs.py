"""Finding a run, what is told of it however it ended, and which of its checkpoints its journal covers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import histories, interrupted
from tests.kit import histories as h
from tests.kit.recorded import CONFIG, record
from tuiapp.library.find import UnknownRunError, find_run, list_runs
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.contract.events import AnyEvent, Metrics, Queued, RunEnded, Summary, encode
from tuiapp.trainers.contract.journal import MAX_LINE_BYTES, READ_BYTES
from tuiapp.trainers.contract.rundir import RunDir, default_runs_dir
from tuiapp.trainers.state.snapshot import read_run
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import summarise

OLD, NEW, NEWER = (
    "20261119T101500-torch-ddp-net-3fa1",
    "20261120T101500-torch-ddp-mlp-00aa",
    "20261120T101500-torch-ddp-net-3fa2",
)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    for run_id in (NEW, OLD, NEWER):
        record(tmp_path / "runs", run_id, histories.completed())
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "20261121T101500-torch-ddp-net-ffff").write_text("a file, not a run")
    return tmp_path / "runs"


def test_newest_first(runs_dir: Path) -> None:
    assert [run.run_id for run in list_runs(runs_dir)] == [NEWER, NEW, OLD]
    assert list_runs(runs_dir / "nowhere") == []
    assert list_runs(runs_dir / OLD / "run.toml") == []


def test_of_two_launched_in_the_same_second_the_later_is_the_latest(runs_dir: Path) -> None:
    os.utime(runs_dir / NEWER / "run.toml", (1, 1))
    assert [run.run_id for run in list_runs(runs_dir)] == [NEW, NEWER, OLD]


@pytest.mark.parametrize(
    ("name", "run_id"), [(OLD, OLD), ("20261119", OLD), ("20261120T101500-torch-ddp-m", NEW), ("latest", NEWER)]
)
def test_found_by_id_prefix_or_latest(runs_dir: Path, name: str, run_id: str) -> None:
    assert find_run(name, runs_dir) == RunDir(runs_dir / run_id)


def test_found_by_directory(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = RunDir(runs_dir / OLD)
    assert find_run(str(runs_dir / OLD), Path("/nowhere")) == expected
    monkeypatch.chdir(runs_dir)
    assert find_run(f"./{OLD}", Path("/nowhere")) == expected
    monkeypatch.chdir(runs_dir / OLD)
    assert find_run(".", Path("/nowhere")).path.samefile(expected.path)


def test_the_time_in_a_queue_is_none_of_the_run_s(tmp_path: Path) -> None:
    run = record(tmp_path, OLD, [Queued(job="", reason="starts when 2 GPUs are idle", **histories.at(300.0))])
    os.utime(run.config, (histories.START, histories.START))
    assert summarise(run).summary.seconds == 0.0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("20261120", rf"'20261120' matches 2 runs: {NEWER}, {NEW}\. Type more of the id\."),
        (OLD.replace("3fa1", "3fb1"), rf"There is no run '.*' in .*\. Did you mean '{OLD}'\? `tuiapp runs` lists them"),
        ("zzz", r"There is no run 'zzz' in .*runs\. `tuiapp runs` lists them\."),
        ("./nowhere", r"\./nowhere is not a run directory: it has no run\.toml\."),
        ("~nobody-at-all/x", "is not a run directory"),
        ("..", "is not a run directory"),
    ],
)
def test_what_is_no_run(runs_dir: Path, name: str, words: str) -> None:
    with pytest.raises(UnknownRunError, match=words):
        find_run(name, runs_dir)


def test_a_place_that_cannot_be_listed_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(
        UnknownRunError, match=r"Cannot list .*runs: Not a directory\.\nChoose another directory with --runs-dir"
    ):
        find_run("latest", tmp_path / "runs")


def test_completed(runs_dir: Path) -> None:
    run = RunDir(runs_dir / OLD)
    info = summarise(run)
    end = histories.completed()[-1]
    assert isinstance(end, RunEnded)
    assert (info.status, info.summary, info.reason) == ("completed", end.summary, end.reason)
    assert (info.config, info.problem) == (CONFIG, "")
    # Not by the files' age, which is another one in a copy.
    assert info.started == histories.START


def test_failed(tmp_path: Path) -> None:
    info = summarise(record(tmp_path, OLD, interrupted.failed()))
    assert (info.status, info.reason, info.summary.steps) == ("failed", "rank 1 failed", 72)


def test_lost(tmp_path: Path) -> None:
    run = record(tmp_path, OLD, histories.running(last_step=72))
    with run.journal.open("ab") as file:
        file.write(b'{"type":"run-ended","status":"compl')
    os.utime(run.config, (histories.START, histories.START))
    info = summarise(run)
    assert info.status == "lost"
    assert "its supervisor died without saying why" in info.reason
    assert (info.summary.steps, info.summary.epochs) == (72, 2.483)
    assert info.summary.seconds == pytest.approx(2 + 72 / 20)


def test_a_run_whose_data_set_is_gone(tmp_path: Path) -> None:
    run = record(tmp_path, OLD, histories.running(last_step=72))
    run.config.write_text('schema = 1\ndataset = "npz:/nowhere/faces.npz"\nglobal_batch_size = 1000000\n')
    info = summarise(run)
    assert info.config is not None
    assert info.config.dataset == "npz:/nowhere/faces.npz"
    assert (info.problem, info.summary.epochs) == ("", 2.483)


def test_running(tmp_path: Path) -> None:
    run = record(tmp_path, OLD, histories.running(last_step=72))
    lock = run.take_lock()
    info = summarise(run)
    assert (info.status, info.reason, info.summary.steps) == ("running", "", 72)
    os.close(lock)


def test_a_run_that_writes_its_end_is_live_until_it_lets_go(tmp_path: Path) -> None:
    run = record(tmp_path, OLD, histories.completed())
    lock = run.take_lock()
    assert summarise(run).status == "running"
    os.close(lock)
    assert summarise(run).status == "completed"


CONFIGURATIONS = {
    "empty": b"",
    "zeros": b"\x00" * 1000,
    "wrong-value": b"epochs = 'many'",
    "newer": b"schema = 2",
    "long": b"#" * 100_000,
    "missing": None,
}
JOURNALS = {"empty": b"", "zeros": b"\x00" * 100_000, "no-events": b"{}\n" * 1000, "missing": None}


@pytest.mark.parametrize("damage", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_configuration_that_cannot_be_read(tmp_path: Path, damage: bytes | None) -> None:
    run = record(tmp_path, OLD, histories.running(last_step=72))
    if damage is None:
        run.config.unlink()
    else:
        run.config.write_bytes(damage)
    info = summarise(run)
    assert info.status == ("newer" if damage == b"schema = 2" else "lost")
    assert info.summary.steps == 72
    if damage == b"":
        assert info.problem == ""
        return
    assert info.config is None
    assert info.summary.epochs == 2.483
    assert "run.toml" in info.problem
    with pytest.raises((ConfigError, OSError)):
        read_config(run)


@pytest.mark.parametrize("damage", JOURNALS.values(), ids=JOURNALS)
def test_a_journal_that_cannot_be_read(tmp_path: Path, damage: bytes | None) -> None:
    run = record(tmp_path, OLD, histories.completed())
    run.journal.unlink()
    if damage is not None:
        run.journal.write_bytes(damage)
    # Long enough ago that it cannot be a run that is being started.
    os.utime(run.config, (1.0, 1.0))
    info = summarise(run)
    assert (info.status, info.summary) == ("lost", Summary())


def test_where_runs_are_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_runs_dir() == home / "data" / "tuiapp" / "runs"
    monkeypatch.setenv("TUIAPP_RUNS_DIR", "~/elsewhere")
    assert default_runs_dir() == home / "elsewhere"
    monkeypatch.setenv("TUIAPP_RUNS_DIR", "relative")
    assert default_runs_dir() == Path.cwd() / "relative"
    monkeypatch.setenv("TUIAPP_RUNS_DIR", "~nobody-at-all/x")
    assert default_runs_dir().is_absolute()


def test_a_run_that_is_being_started_is_not_lost(tmp_path: Path) -> None:
    run = record(tmp_path, OLD, histories.completed())
    run.journal.unlink()
    assert summarise(run).status == "running"


Journal = list[AnyEvent]


def attempt(number: int, resumed_from: int, *parts: AnyEvent) -> Journal:
    return [h.started(attempt=number, resumed_from=resumed_from), *parts]


def both(first: int, last: int) -> Journal:
    return [h.steps(rank, first, last, 1.0) for rank in (0, 1)]


def saved(step: int) -> AnyEvent:
    return h.checkpoint(step, 1.0)


def named(rank: int) -> AnyEvent:
    return Metrics(rank=rank, first_step=29, values={"train/ppl": [3.0]})


def covered(run: RunDir, *checkpoints: int) -> list[int]:
    return [step for step in reversed(read_run(run).covered_checkpoints) if step in checkpoints]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


FIRST = attempt(1, 0, *both(1, 29), saved(29), *both(30, 58), saved(58), *both(59, 70))


"""An attempt whose supervisor died after step 70; its ranks went on to step 116."""


CASES: dict[str, tuple[Journal, tuple[int, ...], list[int]]] = {
    "the newest first": (FIRST, (29, 58), [58, 29]),
    "an evaluation is no step": ([*FIRST[:-1], h.evaluation(3, 4.0), saved(87)], (58, 87), [58]),
    "metrics of any name": (attempt(1, 0, named(0), named(1), saved(29)), (29,), [29]),
    "what the journal never heard of": (FIRST, (29, 58, 87, 116), [58, 29]),
    "steps without the commit": (FIRST[:-3] + FIRST[-2:], (29, 58), [29]),
    "a rank that lags": ([*FIRST[:5], h.steps(0, 30, 58, 1.0), saved(58)], (29, 58), [29]),
    "a rank that lags, and is read later": (
        attempt(1, 0, h.steps(0, 1, 29, 1), saved(29), h.steps(1, 1, 20, 1), h.steps(1, 21, 40, 1)),
        (29,),
        [29],
    ),
    "a rank that told nothing": (attempt(1, 0, h.steps(0, 1, 29, 1.0), saved(29)), (29,), []),
    "a checkpoint told of while later steps were made": (attempt(1, 0, *both(1, 40), saved(29)), (29,), [29]),
    "several told of at once": (attempt(1, 0, *both(1, 90), saved(29), saved(58)), (29, 58, 87), [58, 29]),
    "cut off by hand": (FIRST[:2], (58, 87), []),
    "without a beginning": (FIRST[3:], (58, 87), [58]),
    "no journal to speak of": ([], (29,), []),
    "resumed, and nothing since": (FIRST + attempt(2, 58), (29, 58, 87), [58, 29]),
    "resumed, and on": (FIRST + attempt(2, 58, *both(59, 87), saved(87)), (29, 58, 87), [87, 58, 29]),
    "gone back behind one": (FIRST + attempt(2, 29, *both(30, 40)), (29, 58), [29]),
    "gone back, and it is committed anew without a word": (FIRST + attempt(2, 29, *both(30, 60)), (29, 58), [29]),
    "gone back, and it is told of anew": (FIRST + attempt(2, 29, *both(30, 58), saved(58)), (29, 58), [58, 29]),
    "gone back twice": (FIRST + attempt(2, 58, *both(59, 87), saved(87)) + attempt(3, 29), (29, 58, 87), [29]),
    "resumed over a gap": (FIRST + attempt(2, 116), (58, 116), [116, 58]),
    "resumed over a gap, and on": (FIRST + attempt(2, 116, *both(117, 145), saved(145)), (116, 145), [145, 116]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_covered(run: RunDir, name: str) -> None:
    events, checkpoints, wanted = CASES[name]
    run.journal.write_bytes(b"".join(map(encode, events)))
    assert covered(run, *checkpoints) == wanted


@pytest.mark.nightly
def test_a_journal_torn_anywhere_covers_no_more_than_it_holds(run: RunDir) -> None:
    whole = b"".join(map(encode, FIRST))
    commits = {step: whole.index(encode(saved(step))) + len(encode(saved(step))) for step in (29, 58)}
    for end in range(len(whole)):
        run.journal.write_bytes(whole[:end])
        found = covered(run, 29, 58, 87)
        assert found == [step for step, committed in sorted(commits.items(), reverse=True) if committed <= end]


def test_damage_between_the_lines(run: RunDir) -> None:
    odd = [b"\xff\xfe\n", b"[" * 5000 + b"\n", b'{"type":"steps","rank":"?"}\n', b'{"type":"later","step":3}\n', b"\n"]
    lines = [encode(event) for event in FIRST]
    damaged = b"".join(line + odd[number % len(odd)] for number, line in enumerate(lines))
    for tail in (b'{"type":"st', b"x" * (MAX_LINE_BYTES + READ_BYTES + 1) + b"\n"):
        run.journal.write_bytes(damaged + tail)
        assert covered(run, 29, 58, 87) == [58, 29]
