"""What is taken for a picture or a text, what its file holds, and which files stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from tuiapp.trainers.contract.events import Alert, Media
from tuiapp.trainers.contract.media import MAX_BYTES, MAX_FILES, MAX_SIDE, MAX_TEXT, MediaFolder, decode
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.script.media import MAX_WAITING_BYTES, Image, MediaQueue, take
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.media import shown_at, steps_of
from tuiapp.trainers.state.run_state import RunState

GREY = np.arange(30, dtype=np.uint8).reshape(6, 5) * 8
COLOURS = np.stack([GREY, GREY[::-1], np.full_like(GREY, 255)], axis=2)
CLEAR = np.dstack([COLOURS, np.zeros_like(GREY)])


def queue(tmp_path: Path) -> MediaQueue:
    return MediaQueue(RunDir(tmp_path), 0, 1)


def kept(tmp_path: Path, value: Any) -> list[np.ndarray[Any, Any]]:
    waiting = queue(tmp_path)
    waiting.add(1, "x", take(value))
    found = [event for event in waiting.write(all=True) if isinstance(event, Media)]
    return [decode((tmp_path / "media" / event.file).read_bytes()) for event in found]


PICTURES: dict[str, tuple[Callable[[Path], Any], np.ndarray[Any, Any]]] = {
    "grey": (lambda _: GREY, GREY),
    "one channel": (lambda _: GREY[..., None], GREY),
    "channels last": (lambda _: COLOURS, COLOURS),
    "channels first": (lambda _: np.moveaxis(COLOURS, 2, 0), COLOURS),
    "transparent": (lambda _: CLEAR, np.full_like(COLOURS, 255)),
    "fractions": (lambda _: COLOURS / 255, COLOURS),
    "floats to 255": (lambda _: COLOURS.astype(np.float64), COLOURS),
    "a mask": (lambda _: GREY > 100, (GREY > 100) * np.uint8(255)),
    "beyond the range": (lambda _: np.array([[-1, 0], [np.nan, 1]]), np.array([[0, 128], [128, 255]])),
    "torch": (lambda _: torch.tensor(np.moveaxis(COLOURS, 2, 0)).to(torch.float32) / 255, COLOURS),
    "torch bfloat16": (lambda _: torch.ones(2, 2, dtype=torch.bfloat16), np.full((2, 2), 255)),
    "jax": (lambda _: jax.numpy.asarray(COLOURS), COLOURS),
    "pillow": (lambda _: Pillow.fromarray(COLOURS), COLOURS),
    "a path": (lambda folder: saved(folder / "x.png"), COLOURS),
    "a path in text": (lambda folder: Image(str(saved(folder / "x.png"))), COLOURS),
    "an image of one": (lambda _: Image(Image(COLOURS), caption="again"), COLOURS),
    "large": (lambda _: np.full((3 * MAX_SIDE, 2), 7, np.uint8), np.full((MAX_SIDE, 1), 7)),
}


def saved(path: Path) -> Path:
    Pillow.fromarray(COLOURS).save(path)
    return path


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_kept_as_it_looks(name: str, tmp_path: Path) -> None:
    value, wanted = PICTURES[name]
    [found] = kept(tmp_path, value(tmp_path))
    np.testing.assert_array_equal(found, wanted)
    [file] = (tmp_path / "media").iterdir()
    np.testing.assert_array_equal(np.asarray(Pillow.open(file)), wanted)


def test_several_at_once_and_a_change_after_the_call(tmp_path: Path) -> None:
    image, batch = GREY.copy(), torch.zeros(2, 3, 8, 8)
    taken = take([image, Image(batch)])
    image[:], batch[:] = 0, 1
    waiting = queue(tmp_path)
    waiting.add(1, "x", taken)
    files = [event.file for event in waiting.write(all=True) if isinstance(event, Media)]
    found = [decode((tmp_path / "media" / file).read_bytes()) for file in files]
    assert [one.max() for one in found] == [GREY.max(), 0, 0]


def test_a_text_is_cut(tmp_path: Path) -> None:
    waiting = queue(tmp_path)
    waiting.add(1, "a/b", take("ä" * MAX_TEXT))
    [event] = waiting.write(all=True)
    assert isinstance(event, Media)
    assert event.kind == "text"
    assert (tmp_path / "media" / event.file).stat().st_size == MAX_TEXT


@pytest.mark.parametrize(
    "value", [1.5, None, object(), b"x", [], [1, 2], np.zeros(9), np.zeros((1, 9)), np.zeros((9, 9, 2))]
)
def test_anything_else_is_neither(value: object) -> None:
    with pytest.raises(TypeError):
        take(value)


def test_what_comes_too_fast_leaves_the_first_and_the_last(tmp_path: Path) -> None:
    waiting = queue(tmp_path)
    large = take(np.zeros((2, MAX_WAITING_BYTES // 16), np.uint8))
    for step in range(1, 31):
        waiting.add(step, "x", large)
    found = [event for event in waiting.write(all=True) if isinstance(event, Media)]
    assert (found[0].step, found[-1].step) == (1, 30)
    assert len(found) + sum(event.left_out for event in found) == 30
    assert len(found) <= 8


def test_what_cannot_be_read_is_said_once(tmp_path: Path) -> None:
    waiting = queue(tmp_path)
    (tmp_path / "x.png").write_text("no picture")
    for step in (1, 2):
        waiting.add(step, "x", take(tmp_path / "x.png"))
    [said] = waiting.write(all=True)
    assert isinstance(said, Alert)
    assert "x cannot be kept" in said.text


@pytest.mark.parametrize(("size", "most"), [(10, MAX_FILES), (MAX_BYTES // 8, 8)])
def test_the_older_are_thinned(size: int, most: int, tmp_path: Path) -> None:
    run, state = RunDir(tmp_path), RunState()
    for attempt in (0, 1):
        # The second finds what the first has left.
        folder = MediaFolder(run)
        for step in range(1 + attempt * 150, 151 + attempt * 150):
            [event] = folder.write("a/b", step, [("text", b"x" * size, "")])
            apply(state, event)
    files = state.media["a/b"].files
    steps = steps_of(state.media)
    assert len(files) <= most
    assert (steps[0], steps[-1]) == (1, 300)
    assert {one.file for one in files} == {file.name for file in (tmp_path / "media").iterdir()}
    assert state.media["a/b"].left_out == 300 - len(files)
    # The newer, the closer.
    assert steps[-1] - steps[-2] == 1 < steps[2] - steps[1]
    assert [one.step for one in shown_at(state.media, steps[1] + 1)] == [steps[1]]


def test_a_step_that_is_reported_again_replaces_what_was_there(tmp_path: Path) -> None:
    folder, state = MediaFolder(RunDir(tmp_path)), RunState()
    for count in (3, 1):
        for event in folder.write("x", 3, [("text", b"x", "")] * count):
            apply(state, event)
    assert len(state.media["x"].files) == len(list((tmp_path / "media").iterdir())) == 1
