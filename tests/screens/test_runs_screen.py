"""The Runs screen: order, filter, marks, and what each key asks for."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static

from tests.kit.run_app import until
from tests.kit.runs_app import HOME, ListLister, RunsApp, info
from tuiapp.feeds.runs_feed import Listing
from tuiapp.screens.dialog import Choice
from tuiapp.screens.pickers import ColumnPicker
from tuiapp.screens.requests import CloneRun, CompareRuns, OpenRun
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.state.summary import ListedStatus, RunInfo
from tuiapp.widgets.run_table import RunTable
from tuiapp.widgets.text_view import TextView

THREE = [info(3, "failed", reason="rank 1 failed"), info(2, model="mlp"), info(1, "running", backend="jax-pmap")]
SIZES = [(80, 24), (120, 40), (200, 60)]


def words(app: RunsApp, selector: str) -> str:
    return str(app.runs_screen.query_one(selector, Static).content)


def details(app: RunsApp) -> str:
    return str(app.runs_screen.query_one("#details", TextView).render())


@pytest.mark.parametrize("size", SIZES)
async def test_live_runs_stand_on_top(size: tuple[int, int]) -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        assert app.states == ["running", "failed", "completed"]
        assert all(len(row) <= size[0] for row in app.rows)
        assert "3 runs · 1 running" in words(app, "#heading")
        assert THREE[2].directory.run_id in details(app)
        await pilot.press("down")
        assert "rank 1 failed" in details(app)


@pytest.mark.parametrize(
    ("lister", "said"),
    [
        (ListLister(None), f"Looking for runs in {HOME} …"),
        (ListLister([]), "No runs yet."),
        (
            ListLister([], "Cannot list /home/ada/runs: Permission denied.\nChoose another."),
            "✗ Cannot list /home/ada/runs: Permission denied.\nChoose another.",
        ),
    ],
)
async def test_what_stands_in_the_place_of_no_runs(lister: ListLister, said: str) -> None:
    app = RunsApp(lister)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: said in words(app, "#instead"))
        for key in ("enter", "x", "c", "a", "u", "s", "e", "d", "p", "ctrl+y", "down", "end", "o", "O", "5"):
            await pilot.press(key)
        assert app.asked == []
        assert app.screen is app.runs_screen
    assert lister.calls[0] == "start"
    assert lister.calls[-1] == "close"


async def test_the_cursor_stays_on_its_run() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("end")
        assert app.runs_screen.current == THREE[1]
        app.lister.put(info(4), *THREE)
        await until(pilot, lambda: len(app.rows) == 4)
        assert app.runs_screen.current == THREE[1]
        # A run that is gone leaves its place to the next one.
        app.lister.put(info(4), THREE[0])
        await until(pilot, lambda: len(app.rows) == 2)
        assert app.runs_screen.current == THREE[0]


async def test_sorted_by_the_key_of_a_column_and_the_other_way_round() -> None:
    runs = [info(n, learning_rate=0.01) for n in range(5, 0, -1)]
    app = RunsApp(ListLister(runs))

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 5)
        await pilot.press("7")
        assert "by loss" in words(app, "#heading")
        ascending = app.rows
        await pilot.press("7")
        assert app.rows == ascending[::-1]
        await pilot.press("O")
        assert app.rows == ascending
        await pilot.press("o")
        assert "by ex/s" in words(app, "#heading")
        # Its title is clicked.
        await pilot.click("RunTable", offset=(5, 0))
        assert "by state" in words(app, "#heading")


async def test_the_best_has_a_star_by_what_the_user_chooses() -> None:
    runs = [info(n, learning_rate=0.1**n) for n in (1, 3, 2)]
    better = msgspec.structs.replace(runs[1].summary, test_accuracy=0.99, loss=7.0)
    runs[1] = dataclasses.replace(runs[1], summary=better)
    app = RunsApp(ListLister(runs))

    def stars_and_rates(app: RunsApp) -> list[tuple[str, str]]:
        return [(row[1], row.split("completed")[1].split()[0]) for row in app.rows]

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        assert "★ highest test/accuracy" in words(app, "#heading")
        assert "by best acc" in words(app, "#heading")
        assert stars_and_rates(app) == [("★", "0.001"), (" ", "0.1"), (" ", "0.01")]
        await pilot.press("b")
        await pilot.press("up", "enter")
        await until(pilot, lambda: "★ lowest loss" in words(app, "#heading"))
        assert stars_and_rates(app) == [("★", "0.01"), (" ", "0.1"), (" ", "0.001")]
        # Once more turns it round.
        await pilot.press("b", "enter")
        await until(pilot, lambda: "★ highest loss" in words(app, "#heading"))
        assert stars_and_rates(app) == [("★", "0.001"), (" ", "0.1"), (" ", "0.01")]
    again = RunsApp(ListLister(runs))
    async with again.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(again.rows) == 3)
        assert "★ highest loss" in words(again, "#heading")


@pytest.mark.nightly
async def test_columns_are_picked_and_remembered() -> None:
    runs = [info(n, learning_rate=0.1**n) for n in (1, 3, 2)]

    def titles(app: RunsApp) -> list[str]:
        return app.runs_screen.query_one(RunTable).render_line(0).text.split()

    async def pick(pilot: Pilot[None], app: RunsApp, *keys: str) -> None:
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, ColumnPicker))
        await pilot.press(*keys)
        await until(pilot, lambda: app.screen is app.runs_screen)
        await app.workers.wait_for_complete()

    app = RunsApp(ListLister(runs))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        # What is alike in all is shown where it is asked for, and what differs is not where it is not wanted.
        for search in ("momen", "backend", "learning"):
            await pick(pilot, app, *search, "space", "enter")
        assert titles(app)[:3] == ["state", "backend", "momentum"]
        # A search without a hit, and a way out, change nothing.
        await pick(pilot, app, *"nobody", "space", *["backspace"] * 6, "home", "space", "escape")
        assert titles(app)[:3] == ["state", "backend", "momentum"]
    again = RunsApp(ListLister(runs))
    async with again.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(again.rows) == 3)
        assert titles(again)[:3] == ["state", "backend", "momentum"]
        await pick(pilot, again, "space", "enter")
        assert titles(again)[:2] == ["state", "learning_rate"]
        # What takes long is looked at once it is asked for.
        assert not again.lister.measures
        await pick(pilot, again, *"disk", "space", "enter")
        assert again.lister.measures
        assert "disk" in titles(again)
        # Sorted by the accuracy, which is what they are best by, they have it once.
        await pilot.press("6")
        await until(pilot, lambda: "acc▼" in titles(again))
        assert sum(title.startswith("acc") for title in titles(again)) == 1


@pytest.mark.nightly
async def test_groups_are_folded_opened_and_marked() -> None:
    runs = [info(n, "running" if n == 3 else "completed", seed=n) for n in (4, 3, 2)]
    runs += [info(1, model="mlp"), info(0, model="mlp", learning_rate=0.5)]

    app = RunsApp(ListLister(runs))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        assert "▸ ● 1  ✓ 2" in app.rows[0]
        assert "2–4" in app.rows[0]
        assert "1 running · 2 completed" in details(app)
        # Enter opens it, left on one of its runs closes it, and all of them are marked by one key.
        await pilot.press("enter")
        assert [row[3:8] for row in app.rows[:4]] == ["▾ ● 1", "    ●", "    ✓", "    ✓"]
        await pilot.press("down", "down", "x", "left", "x")
        assert "3 marked" in words(app, "#heading")
        assert app.rows[0].startswith("a  ▸")
        await pilot.press("x")
        assert "marked" not in words(app, "#heading")
        # A group matches if a run of it does, and shows that.
        await pilot.press("slash", *"running", "enter")
        assert app.states == ["running"]
        await pilot.press("escape", "z")
        assert len(app.rows) == 5
        assert app.states[0] == "running"
    again = RunsApp(ListLister(runs))
    async with again.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(again.rows) == 5)
        await pilot.press("z", "right")
        await until(pilot, lambda: len(again.rows) == 6)
        await pilot.press("left")
        assert len(again.rows) == 3


async def test_results_are_told_against_a_baseline() -> None:
    runs = [info(n, learning_rate=0.1**n) for n in (3, 2, 1)]
    app = RunsApp(ListLister(runs))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("down", "B")
        assert f"= baseline {runs[1].directory.run_id}" in words(app, "#heading")
        assert [row[2] for row in app.rows] == [" ", "=", " "]
        assert ["0.3333" in app.rows[1], "−0.0833" in app.rows[0], "+0.1667" in app.rows[2]] == [True] * 3
    again = RunsApp(ListLister(runs))
    async with again.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(again.rows) == 3)
        assert again.rows[1][2] == "="
        await pilot.press("down", "B")
        assert "baseline" not in words(again, "#heading")
        assert "0.2500" in again.rows[0]


async def test_the_best_are_on_top_below_live_ones_until_the_user_sorts() -> None:
    runs = [info(n) for n in (3, 2, 1)] + [info(0, "running")]
    runs = [
        dataclasses.replace(one, summary=msgspec.structs.replace(one.summary, test_accuracy=each))
        for one, each in zip(runs, (0.2, 0.9, 0.5, 0.1), strict=True)
    ]

    def accuracies(app: RunsApp) -> list[str]:
        return [row.split("%")[0].split()[-1] for row in app.rows]

    app = RunsApp(ListLister(runs))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.rows) == 4)
        assert accuracies(app) == ["10.0", "90.0", "50.0", "20.0"]
        await pilot.press("9")
        assert "by started" in words(app, "#heading")
        # What the user sorts by counts for live ones, too.
        assert accuracies(app) == ["20.0", "90.0", "50.0", "10.0"]
    again = RunsApp(ListLister(runs))
    async with again.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(again.rows) == 4)
        assert accuracies(again) == ["20.0", "90.0", "50.0", "10.0"]


async def test_rows_keep_their_places_until_the_user_sorts() -> None:
    def run(number: int, accuracy: float, status: ListedStatus = "running", **more: Any) -> RunInfo:
        found = info(number, status, model="mlp" if number > 4 else "net")
        return dataclasses.replace(
            found, summary=msgspec.structs.replace(found.summary, test_accuracy=accuracy, **more), about=about
        )

    def listed(app: RunsApp) -> list[int]:
        return [int(row.infos[0].directory.run_id[-4:], 16) for row in app.runs_screen.query_one(RunTable).rows]

    about = About()
    app = RunsApp(ListLister([run(3, 0.5), run(2, 0.9), run(1, 0.7)]))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: listed(app) == [2, 1, 3])
        await pilot.press("down")
        # Another becomes the best, one ends, and a new one is not as good as it.
        app.lister.put(run(4, 0.95), run(3, 0.99), run(2, 0.9, "completed"), run(1, 0.1))
        await until(pilot, lambda: listed(app) == [4, 2, 1, 3])
        assert app.states == ["running", "completed", "running", "running"]
        assert app.rows[3].startswith(" ★")
        assert app.runs_screen.current == run(1, 0.1)
        # What the user changes of a run counts at once.
        about = About(group="night")
        app.lister.put(run(4, 0.95), run(3, 0.99), run(2, 0.9, "completed"), run(1, 0.1))
        await pilot.press("z")
        await until(pilot, lambda: listed(app) == [3, 4, 1, 2])
        app.lister.put(run(4, 0.95), run(3, 0.1), run(2, 0.9, "completed"), run(1, 0.2))
        await until(pilot, lambda: "20.0 %" in app.rows[2])
        assert listed(app) == [3, 4, 1, 2]
        # A dialog moves nothing; another screen, and the key, does.
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.runs_screen)
        assert listed(app) == [3, 4, 1, 2]
        app.push_screen(Screen())
        await until(pilot, lambda: app.screen is not app.runs_screen)
        app.pop_screen()
        await until(pilot, lambda: listed(app) == [4, 1, 3, 2])
        app.lister.put(run(4, 0.95, loss=9.0), run(3, 0.1), run(2, 0.9, "completed"), run(1, 0.2))
        await until(pilot, lambda: "9.000" in app.rows[0])
        await pilot.press("7")
        assert listed(app) == [3, 2, 1, 4]
        app.lister.put(run(4, 0.95, loss=0.001), run(3, 0.1), run(2, 0.9, "completed"), run(1, 0.2))
        await until(pilot, lambda: "0.0010" in app.rows[3])
        await pilot.press("7")
        assert listed(app) == [1, 2, 3, 4]


async def test_marked_runs_are_compared() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("c")
        assert app.asked == []
        await pilot.press("x", "down", "x")
        assert [row[:2] for row in app.rows] == ["a ", "b ", "  "]
        await pilot.press("c")
        await until(pilot, lambda: bool(app.asked))
        assert app.asked == [CompareRuns((THREE[2], THREE[0]))]
        await pilot.press("X", "home", "x", "end", "c")
        await until(pilot, lambda: len(app.asked) == 2)
        assert app.asked[1] == CompareRuns((THREE[2], THREE[1]))


async def test_opened_replayed_and_cloned() -> None:
    app = RunsApp(ListLister(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        await pilot.press("enter", "p", "a")
        await until(pilot, lambda: len(app.asked) == 3)
        run = THREE[2]
        assert run.config is not None
        assert app.asked == [
            OpenRun(run.directory),
            OpenRun(run.directory, replay=True),
            CloneRun(run.directory, run.config),
        ]


async def test_what_does_not_work_for_a_run_is_not_offered() -> None:
    newer = info(1, "newer", problem="its journal has schema 7")
    app = RunsApp(ListLister([newer]))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 1)
        assert "schema 7" in details(app)
        await pilot.press("enter", "p", "a", "u", "s", "e")
        await pilot.pause()
        assert app.asked == []
        assert app.screen is app.runs_screen
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Choice))


async def test_the_first_picture_has_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(ListLister):
        def take(self) -> Listing | None:
            self.calls.append("take")
            return super().take() if len(self.calls) > 4 else None

    empty: list[bool] = []
    show = RunsScreen._show

    def note(screen: RunsScreen, *, anew: bool = False) -> None:
        empty.append(screen._listing is None)
        show(screen, anew=anew)

    monkeypatch.setattr(RunsScreen, "_show", note)
    app = RunsApp(Late(THREE))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
    assert not any(empty)
