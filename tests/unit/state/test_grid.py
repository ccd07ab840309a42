"""How many charts a page has, and how the selection moves over pages."""

from __future__ import annotations

import pytest

from tuiapp.trainers.state.known_metrics import grouped
from tuiapp.view.grid import LEAST_HEIGHT, LEAST_WIDTH, MOST, Pages, grid_size


@pytest.mark.parametrize(
    ("count", "room", "size"),
    [
        (20, (80, 22), (2, 2)),
        (20, (80, 21), (2, 2)),
        (20, (120, 38), (2, 3)),
        (20, (200, 58), (4, 2)),
        (20, (250, 68), (4, 2)),
        (20, (40, 10), (1, 1)),
        (20, (10, 3), (1, 1)),
        (0, (80, 22), (1, 1)),
        (1, (200, 58), (1, 1)),
        (2, (80, 22), (2, 1)),
        (3, (200, 58), (3, 1)),
        (5, (200, 58), (3, 2)),
        (3, (80, 22), (2, 2)),
    ],
)
def test_as_many_as_are_readable(count: int, room: tuple[int, int], size: tuple[int, int]) -> None:
    assert grid_size(count, *room) == size


def test_no_chart_is_smaller_than_can_be_read_and_no_page_has_more_than_eight() -> None:
    for width in range(LEAST_WIDTH, 260, 7):
        for height in range(LEAST_HEIGHT, 80, 3):
            for count in (1, 3, 8, 50):
                columns, rows = grid_size(count, width, height)
                assert columns * rows <= MOST
                assert width // columns >= LEAST_WIDTH
                assert height // rows >= LEAST_HEIGHT


def pages(count: int, selected: str = "") -> Pages:
    made = Pages(selected=selected)
    made.show([f"m{n}" for n in range(count)], 80, 22)
    return made


def test_the_selection_moves_over_pages_and_stops_at_the_ends() -> None:
    made = pages(10)
    assert (made.selected, made.page, made.count, list(made.visible)) == ("m0", 0, 3, ["m0", "m1", "m2", "m3"])
    made.turn(1)
    made.move(3)
    assert (made.selected, made.page) == ("m7", 1)
    made.turn(1)
    assert (made.selected, list(made.visible)) == ("m9", ["m8", "m9"])
    made.turn(1)
    made.move(1)
    assert made.selected == "m9"
    made.move(-100)
    assert made.selected == "m0"
    made.turn(-1)
    assert made.selected == "m0"


def test_the_selected_name_stays_when_names_come_and_the_first_is_selected_when_it_goes() -> None:
    made = pages(10, "m5")
    assert made.page == 1
    made.show(["a", "b", "c", *made.names], 80, 22)
    assert (made.selected, made.page) == ("m5", 2)
    made.show(["a", "b"], 80, 22)
    assert (made.selected, made.page) == ("a", 0)
    made.show([], 80, 22)
    made.move(1)
    made.turn(1)
    assert (made.selected, made.count, list(made.visible)) == ("", 1, [])


def test_names_are_grouped_and_searched() -> None:
    names = ["train/ppl", "eval/f1", "lr", "loss", "train/loss", "test/accuracy"]
    assert grouped(names) == {
        "": ["loss", "lr"], "test": ["test/accuracy"], "eval": ["eval/f1"], "train": ["train/loss", "train/ppl"]
    }  # fmt: skip
    assert grouped(names, "LOSS tr") == {"": [], "train": ["train/loss"]}
    assert grouped(names, "learning") == {"": ["lr"]}
