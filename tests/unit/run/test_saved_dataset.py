"""Saved data sets of Hugging Face: which files, columns and splits are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.user_files import COLOURS, encoded
from tuiapp.trainers.config.data_files import DatasetError, NotExaminedError
from tuiapp.trainers.config.datasets import find_dataset

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tuiapp.trainers.sources.saved_dataset import examine, load  # noqa: E402


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved"


def table(examples: int, **more: Any) -> Any:
    labels = [number % 3 for number in range(examples)]
    images = [{"bytes": encoded(label, number), "path": None} for number, label in enumerate(labels)]
    return pa.table({"image": images, "label": pa.array(labels, pa.int64()), **more})


def write_arrow(file: Path, rows: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=7)


def write_parquet(file: Path, rows: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, row_group_size=7)


def check(name: str, train: int, test: int) -> None:
    with pytest.raises(NotExaminedError):
        find_dataset(name)
    facts = examine(name, 8, seed=0)
    assert (facts.train_examples, facts.test_examples, facts.classes, facts.input_shape) == (train, test, 3, (8, 8, 3))
    arrays = load(facts)
    known = np.array(list(COLOURS.values()))
    for images, labels, count in ((arrays.x_train, arrays.y_train, train), (arrays.x_test, arrays.y_test, test)):
        assert images.shape == (count, 8, 8, 3)
        nearest = np.linalg.norm(images[:].mean((1, 2))[:, None] - known, axis=2).argmin(1)
        np.testing.assert_array_equal(nearest, labels)


def test_parquet_files_by_their_names(path: Path) -> None:
    for number in range(2):
        write_parquet(path / "data" / f"train-0000{number}-of-00002.parquet", table(15))
    write_parquet(path / "data" / "validation-00000-of-00001.parquet", table(9))
    check(f"hf:{path}", 30, 9)


def test_one_parquet_file_is_split_by_the_seed(path: Path) -> None:
    write_parquet(path / "all.parquet", table(30))
    check(f"hf:{path}/all.parquet", 24, 6)
    check(f"hf:{path}", 24, 6)


def test_a_directory_of_save_to_disk(path: Path) -> None:
    write_arrow(path / "train" / "data-00000-of-00001.arrow", table(20))
    write_arrow(path / "train" / "cache-0123.arrow", table(5))
    write_arrow(path / "test" / "data-00000-of-00001.arrow", table(10))
    (path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    check(f"hf:{path}", 20, 10)


def test_images_as_plain_bytes_and_the_column_called_label(path: Path) -> None:
    rows = table(30, other=pa.array(range(30), pa.int32()))
    plain = [cell["bytes"] for cell in rows.column("image").to_pylist()]
    write_parquet(path / "all.parquet", rows.set_column(0, "picture", pa.array(plain, pa.binary())))
    check(f"hf:{path}/all.parquet", 24, 6)


def refusal(path: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        load(examine(f"hf:{path}", 8, 0))
    return str(caught.value)


def test_refusals(path: Path) -> None:
    assert refusal(path) == f"{path} is not there."
    path.mkdir()
    assert refusal(path) == f"{path} has neither .parquet files nor .arrow files of save_to_disk."
    file = path / "test.parquet"
    write_parquet(file, table(6))
    assert refusal(path) == f"{path} has the splits test, but no train."
    file = file.rename(path / "train.parquet")
    file.write_bytes(file.read_bytes()[:200])
    assert refusal(path).startswith(f"{file} cannot be read: ")
    rows = table(6)
    for changed, words in (
        (rows.drop_columns(["image"]), "has the columns label; none has images, as encoded bytes."),
        (rows.drop_columns(["label"]), "none of its columns image are integers; the labels must be in one"),
        (rows.set_column(1, "label", pa.array([0, 1, None] * 2, pa.int64())), "some labels in label are missing."),
        (rows.set_column(1, "label", pa.array([-1] * 6, pa.int64())), "label has the label -1; labels count from 0"),
        (rows.slice(0, 1), "there must be two images at least"),
        (
            rows.set_column(0, "image", pa.array([{"bytes": b"", "path": "a.png"}] * 6)),
            f"image 0 of {file} cannot be decoded",
        ),
        (
            rows.set_column(0, "image", pa.array([{"bytes": None}] * 6, pa.struct([("bytes", pa.binary())]))),
            "image 0 has no bytes; save the data set with its images.",
        ),
    ):
        write_parquet(file, changed)
        assert words in refusal(path)
