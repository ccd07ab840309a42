"""Folders of images: what they must be, how they are decoded, kept and split."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.kit.user_files import COLOURS, write_images
from tuiapp.trainers.config.data_files import DatasetError, NotExaminedError, cache_dir
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.relevance import check_inapplicable, inapplicable_keys
from tuiapp.trainers.config.run_config import RunConfig, to_mapping
from tuiapp.trainers.sources import image_cache
from tuiapp.trainers.sources.image_cache import Picture, decode
from tuiapp.trainers.sources.image_folder import examine, load


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_dir("images")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "my images"


def colours(images: np.ndarray) -> list[str]:
    """The nearest class of each image's mean colour."""
    known = np.array(list(COLOURS.values()))
    distances = np.linalg.norm(images.mean((1, 2))[:, None] - known, axis=2)
    return [list(COLOURS)[number] for number in distances.argmin(1)]


@pytest.mark.parametrize("test", ["test", "val"])
def test_folders_below_train_and_test(folder: Path, test: str) -> None:
    name = write_images(folder, "train", each=10)
    write_images(folder, test, each=4)
    (folder / "train" / "red" / "notes.txt").write_text("no image")
    (folder / "train" / ".hidden").mkdir()
    facts = examine(name, 16, seed=0)
    assert (facts.train_examples, facts.test_examples, facts.input_shape, facts.classes) == (30, 12, (16, 16, 3), 3)
    assert (facts.mapped, facts.split_seed, facts.value_bytes) == (True, None, 1)
    arrays = load(facts)
    for images, labels, count in ((arrays.x_train, arrays.y_train, 30), (arrays.x_test, arrays.y_test, 12)):
        assert images.shape == (count, 16, 16, 3)
        assert images.is_mapped
        assert colours(images[:]) == [list(COLOURS)[label] for label in labels]
        assert (np.bincount(labels) == count // 3).all()


def test_one_level_is_split_by_the_seed(folder: Path, cache: Path) -> None:
    name = write_images(folder, each=10)
    splits = []
    for seed in (0, 0, 1):
        facts = examine(name, 16, seed)
        assert (facts.train_examples, facts.test_examples) == (24, 6)
        arrays = load(facts)
        assert colours(arrays.x_train[:]) == [list(COLOURS)[label] for label in arrays.y_train]
        splits.append((arrays.y_test.tolist(), arrays.x_test[:].tobytes()))
        together = [image.tobytes() for image in (*arrays.x_train[:], *arrays.x_test[:])]
        assert len(set(together)) == 30
    assert splits[0] == splits[1] != splits[2]
    # Decoded once for all.
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_what_is_decoded_is_kept_until_the_folder_changes(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_images(folder, "train", "test", each=4)
    first = examine(name, 16, 0)
    load(first)
    assert capsys.readouterr().out == f"decoded {folder}: 24 images\n"
    with monkeypatch.context() as patched:
        patched.setattr(image_cache, "decode", lambda *_: pytest.fail("decoded again"))
        load(examine(name, 16, 0))
    assert examine(name, 17, 0).checksum != first.checksum
    os.utime(folder / "train" / "red" / "0.png")
    changed = examine(name, 16, 0)
    assert changed.checksum != first.checksum
    with pytest.raises(DatasetError, match="was changed while the run was starting; start it again"):
        load(replace(first, checksum="0" * 32))
    load(changed)
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 2


def test_the_middle_square_is_scaled_upright(folder: Path) -> None:
    folder.mkdir()
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, :20] = 255  # Cut off: the middle is black, with white at the left in the upper half.
    pixels[:10, 20:30] = 255
    upright = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # Turned by a quarter, clockwise, to be upright.
    upright.rotate(90, expand=True).save(folder / "turned.png", exif=exif)
    upright.save(folder / "upright.png")
    found = [decode(Picture(name, folder / name), 10) for name in ("turned.png", "upright.png")]
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0][:4, :4].min() == 255
    assert found[0][6:, 6:].max() == 0


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "I;16", "CMYK"])
def test_every_kind_of_image_becomes_rgb(folder: Path, mode: str) -> None:
    folder.mkdir()
    image = Image.new(mode if mode != "I;16" else "I;16", (9, 8))
    file = folder / ("image.jpg" if mode == "CMYK" else "image.png")
    image.save(file)
    found = decode(Picture(str(file), file), 8)
    assert found.shape == (8, 8, 3)
    assert found.dtype == np.uint8


def test_a_damaged_image_is_named_and_nothing_is_left(folder: Path, cache: Path) -> None:
    name = write_images(folder, each=8)
    damaged = folder / "green" / "5.jpg"
    damaged.write_bytes(damaged.read_bytes()[:300])
    with pytest.raises(DatasetError, match=r"green/5\.jpg cannot be decoded: .*Replace or remove it\."):
        load(examine(name, 16, 0))
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_refusals(folder: Path) -> None:
    def refusal() -> str:
        with pytest.raises(DatasetError) as caught:
            find_dataset(f"folder:{folder}")
        return str(caught.value)

    assert refusal() == f"{folder} cannot be read: No such file or directory."
    folder.write_text("")
    assert refusal() == f"{folder} is not a folder."
    folder.unlink()
    folder.mkdir()
    assert refusal() == f"{folder} has 0 folders; it must have one for each class, two at least."
    (folder / "train").mkdir()
    assert refusal() == f"{folder} has a folder train, but neither test nor val beside it."
    for name in ("train/cat", "train/dog", "val/cow"):
        (folder / name).mkdir(parents=True)
    assert refusal() == f"{folder}/val has a folder cow, but {folder}/train has none; both must have the same classes."
    (folder / "val/cow").rename(folder / "val/dog")
    with pytest.raises(NotExaminedError):
        find_dataset(f"folder:{folder}")
    with pytest.raises(
        DatasetError, match=r"train/cat has no image \(\.jpg, \.jpeg, \.png, \.webp\); delete the folder"
    ):
        examine(f"folder:{folder}", 16, 0)
    for name in ("cat", "dog"):
        Image.new("RGB", (9, 9)).save(folder / "train" / name / "a.png")
    with pytest.raises(DatasetError, match="val has no image"):
        examine(f"folder:{folder}", 16, 0)


def test_the_size_goes_with_folders_alone(folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = check_inapplicable(RunConfig(image_size=32), ["image_size"])
    assert problem.message == "32 would have no effect with dataset digits: it applies only to folder: or hf:."
    name = write_images(folder)
    monkeypatch.chdir(folder.parent)
    config = place(RunConfig(dataset="folder:my images", image_size=32, platform="cpu"), machine)
    assert config.dataset == name
    assert "image_size" not in inapplicable_keys(to_mapping(config))
