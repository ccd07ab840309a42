"""The sharding map's pictures, drawn without an app."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.sharded import jax_run, named, two_axes
from tuiapp.trainers.contract.events import Held, Shard, Sharding
from tuiapp.view.sharding import split_words
from tuiapp.widgets.sharding_map import ShardingMap, weight_lines


def drawn(devices: int, *arrays: Sharding, width: int = 46) -> list[str]:
    state = fold(jax_run(devices, *arrays))
    return [str(line) for line in ShardingMap.picture_lines(state, width, dark=True)]


@pytest.mark.parametrize("devices", [2, 4, 8, 16])
def test_a_batch_split_over_the_devices(devices: int) -> None:
    title, how, picture = drawn(
        devices, named("batch", [64, 28, 28, 1], {"batch": devices}, ["batch", None, None, None])
    )
    assert title.startswith("batch  f32[64,28,28,1]")
    assert "each" in title + how
    assert how.startswith(f"split in {devices}")
    cells = picture.strip("│").split("│")
    assert [cell.split()[0] for cell in cells] == list("abcdefghijklmnop"[:devices])
    assert len(picture) <= 46


def test_unequal_parts_are_as_wide_as_they_are_large() -> None:
    parts = [
        Shard(rank=rank, device=f"cuda:{rank}", index=[(start, stop), (0, 8)], bytes=32 * (stop - start))
        for rank, (start, stop) in enumerate([(0, 30), (30, 42), (42, 48)])
    ]
    batch = Sharding(
        array="batch", shape=[48, 8], dtype="float32", mesh={"batch": 3}, spec=["batch", None], shards=parts
    )
    *_, picture = drawn(3, batch, width=60)
    cells = picture.strip("│").split("│")
    assert [len(cell) for cell in cells] == [35, 14, 7]
    assert [cell.split()[0] for cell in cells] == ["a", "b", "c"]
    state = fold(jax_run(3, batch))
    assert split_words(state.arrays["batch"]) == "batch 48 = 30 + 12 + 6"


def test_a_mesh_of_two_axes_is_a_table() -> None:
    lines = drawn(8, named("w", [8, 16], {"data": 2, "model": 4}, ["data", "model"]))
    rows = [[cell.split()[0] for cell in line.strip("│").split("│")] for line in lines[2:]]
    assert rows == [["a", "b", "c", "d"], ["e", "f", "g", "h"]]


def test_partly_sharded_is_hatched_with_all_who_hold_a_part() -> None:
    lines = drawn(8, named("w", [8, 16], {"data": 4, "model": 2}, [None, "model"]))
    assert "split in 2, each part on 4 devices" in lines[1]
    first, second = lines[2].strip("│").split("│")
    assert first.strip("░ ").split()[:4] == list("aceg")
    assert second.strip("░ ").split()[:4] == list("bdfh")
    assert "░" in first


def test_replicated_shows_every_device_in_one_cell() -> None:
    lines = drawn(16, named("w", [8, 16], {"batch": 16}, [None, None]))
    assert lines[1].startswith("replicated ×16")
    assert lines[2].strip("║░ ").split() == list("abcdefghijklmnop")


@pytest.mark.parametrize("width", [56, 76, 116])
def test_what_a_step_exchanges_is_never_cut_in_a_word(width: int) -> None:
    calls = {"all-gather before forward": 4_726_784, "all-gather before backward": 4_726_784}
    parts = {"transformer.blocks.0": {**calls, "reduce-scatter after backward": 4_726_784}}
    held = [
        Held(
            rank=rank,
            device=f"cpu:{rank}",
            held={"parameters": 9 << 20, "optimizer": 19 << 20},
            whole={"parameters": 18 << 20, "optimizer": 38 << 20},
            exchanged=parts,
            **h.at(1),
        )
        for rank in range(2)
    ]
    state = fold([h.started(2), *held])
    lines = [str(line) for line in ShardingMap.held_lines(state, width, dark=True)]
    assert all(len(line) <= width for line in lines)
    assert "…" not in "".join(lines)
    said = " ".join(" ".join(lines).split())
    for words in ("all-gather", "reduce-scatter", "after backward", "replicated it would be 56.0 MiB"):
        assert words in said


@pytest.mark.parametrize("width", [56, 76, 116])
def test_a_mesh_that_splits_weights_lists_who_has_which_part(width: int) -> None:
    state = fold(two_axes(1, 4))
    lines = [str(line) for line in weight_lines(state, width)]
    assert all(len(line) <= width for line in lines)
    rows = {line.split()[0]: line for line in lines[1:-1]}
    assert list(rows) == ["fc1.kernel", "fc1.bias", "fc2.kernel", "fc2.bias", "out.kernel", "out.bias"]
    assert "10 is not divisible by 4" in rows["out.bias"]
    assert "a 0–63, b 64–127, c 128–191, d 192–255" in rows["fc1.bias"] or "axis 0 in 4" in rows["fc1.bias"]
    assert ("axis 1: a 0–31" in rows["fc2.kernel"]) == (width > 70)
    # In a line each, and the largest in a picture, too.
    drawn = [str(line) for line in ShardingMap.picture_lines(state, width, dark=True)]
    assert sum("fc1.kernel" in line for line in drawn) == 3
    assert not any("fc2" in line for line in drawn)
    held = " ".join(" ".join(str(line) for line in ShardingMap.held_lines(state, width, dark=True)).split())
    assert "parameters and optimizer 700 KiB a device · replicated it would be 2.69 MiB" in held
    assert "forward all-gather 36.0 KiB · all-reduce 320 B" in held


def test_equal_parts_are_told_with_all_who_have_them() -> None:
    lines = [str(line) for line in weight_lines(fold(two_axes(2, 2)), 76)]
    assert lines[1].endswith("axis 1: a c 0–127, b d 128–255")
    assert weight_lines(fold(jax_run(2, named("parameter w", [8], {"batch": 2}, [None]))), 76) == []
