"""A text as data: its windows, and what a language model writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import DATASETS, find_dataset
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig, best_by, build_config
from tuiapp.trainers.sources.datasets import SHAKESPEARE_FILE, load
from tuiapp.trainers.tasks.catalog import SAMPLES, samples


def test_windows_follow_each_other_and_are_labelled_with_the_next_byte(tmp_path: Path) -> None:
    text = np.random.default_rng(0).integers(0, 256, 1000, np.uint8).tobytes()
    (tmp_path / "odd.txt").write_bytes(text)
    facts = find_dataset(f"text:{tmp_path}/odd.txt", context=16)
    assert (facts.train_examples, facts.test_examples, facts.input_shape, facts.classes) == (56, 6, (16,), 256)
    data = load(facts)
    for x, y, part in ((data.x_train, data.y_train, text[:900]), (data.x_test, data.y_test, text[900:])):
        assert {str(array.dtype) for array in (x, y)} == {"uint8"}
        assert x.tobytes() == part[: x.size]
        assert y.tobytes() == part[1 : y.size + 1]
    assert facts.decoded_bytes == 2 * (data.x_train.size + data.x_test.size)


def test_the_text_that_ships_is_as_it_is_described() -> None:
    assert DATASETS["shakespeare"].text_bytes == SHAKESPEARE_FILE.stat().st_size
    assert load(find_dataset("shakespeare")).x_train.shape == (DATASETS["shakespeare"].train_examples, 128)


def test_what_is_no_text_of_enough_bytes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_bytes(bytes(10 * 129 - 1))
    with pytest.raises(DatasetError, match=r"has 1,289 bytes, but windows of 128 need 1,290: use a longer text, or"):
        find_dataset(f"text:{file}")
    file.write_bytes(bytes(10 * 129))
    facts = find_dataset(f"text:{file}")
    assert (facts.train_examples, facts.test_examples) == (9, 1)
    file.write_bytes(bytes(2000))
    with pytest.raises(DatasetError, match="was changed while the run was starting"):
        load(facts)
    with pytest.raises(DatasetError, match="is not a file"):
        find_dataset(f"text:{tmp_path}")
    with pytest.raises(DatasetError, match="cannot be read: No such file"):
        find_dataset(f"text:{tmp_path}/none")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataset": "shakespeare"}, "model: net trains on images, not on text as of shakespeare: use gpt-small."),
        (
            {"model": "gpt-small"},
            "model: gpt-small trains on text, not on images as of digits: use mlp, net, convnet, resnet18.",
        ),
        (
            {"model": "gpt-small", "dataset": "text:a", "backend": "mxnet-gluon"},
            "backend: mxnet-gluon has no model for text as of text:a: use torch-ddp, torch-fsdp, torch-dp, "
            "jax-sharding, jax-pmap, keras-jax, keras-torch.",
        ),
        (
            {"model": "gpt-small", "dataset": "shakespeare", "context": 60_000},
            "context: shakespeare has 203,485 bytes, but windows of 60000 need 600,010: use a longer text, or a "
            "smaller context.",
        ),
    ],
)
def test_models_backends_and_data_of_different_tasks_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(values)
    assert str(caught.value) == message


def test_runs_on_a_text_are_best_by_the_loss() -> None:
    assert best_by(RunConfig(dataset="text:mine.txt", best="accuracy")) == "loss"
    assert [best_by(RunConfig(best=by)) for by in ("accuracy", "loss")] == ["accuracy", "loss"]


def test_a_model_writes_by_what_it_has_written_with_the_same_draws() -> None:
    asked: list[npt.NDArray[np.uint8]] = []

    def counts_up(tokens: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        asked.append(tokens.copy())
        logits = np.full((*tokens.shape, 256), -1e4, np.float32)
        np.put_along_axis(logits, (tokens + 1)[..., None].astype(np.int64), 0.0, axis=2)
        return logits

    # From the line's end, 10, up.
    assert samples(counts_up, 8, seed=0) == [bytes(range(11, 18)).decode()] * SAMPLES
    assert len(asked) == 7

    def undecided(tokens: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        return np.zeros((*tokens.shape, 256), np.float32)

    first, again, other = (samples(undecided, 64, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first[0] != first[1]
    # Bytes that are no UTF-8.
    assert "\ufffd" in first[0]
