"""Other people's trainers, with their adapters, as users run them; each is stopped and saves on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.harness import Watched
from tests.kit.own_scripts import TORCHRUN, Start, curve, ends_well, saved_then_stopped, the_run
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.contract.events import Checkpoint, Facts

pytestmark = pytest.mark.nightly


def config_of(watched: Watched) -> dict[str, Any]:
    return {name: value for fact in watched.of(Facts) for name, value in fact.config.items()}


def total_steps_of(watched: Watched) -> list[int]:
    return [fact.total_steps for fact in watched.of(Facts) if fact.total_steps]


HUGGINGFACE = """
    import sys, torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from tuiapp.integrations.huggingface import TuiappCallback

    def main(out, steps, **more):
        torch.manual_seed(0)
        tokens = torch.randint(0, 50, (64, 8))
        data = [{"input_ids": row, "labels": int(row[0] > 25)} for row in tokens]
        sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
        model = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
        given = dict(
            run_name="tiny", max_steps=steps, per_device_train_batch_size=4, logging_steps=1, use_cpu=True,
            save_strategy="no", report_to="none", disable_tqdm=True,
        )
        args = TrainingArguments(out, **{**given, **more})
        trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:8], callbacks=[TuiappCallback()])
        trainer.train()
        trainer.evaluate()
        trainer.evaluate(data[:4], metric_key_prefix="test")
        trainer.state.save_to_json(out + "/said.json")
"""


def test_huggingface_reports(start: Start, runs_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    more = 'eval_strategy="steps", eval_steps=4, eval_on_start=True'
    ends_well(start(f"{HUGGINGFACE}\n    main({str(tmp_path / 'out')!r}, 6, {more})"))
    watched = the_run(runs_dir)
    assert (watched.end().status, watched.end().summary.steps) == ("completed", 6)
    assert list(curve(watched, 0, "loss")) == [1, 2, 3, 4, 5, 6]
    assert list(curve(watched, 0, "eval/loss")) == [0, 4, 6]
    assert list(curve(watched, 0, "epoch")) == [1, 2, 3, 4, 5, 6]
    assert not curve(watched, 0, "train_loss")
    for said in json.loads((tmp_path / "out" / "said.json").read_text())["log_history"]:
        for name in said.keys() & {"loss", "grad_norm", "learning_rate", "eval_loss", "test_loss"}:
            grouped = name.replace("_", "/") if name.endswith("_loss") else name
            assert curve(watched, 0, grouped)[said["step"]] == said[name]
    config, unset = config_of(watched), {key for fact in watched.of(Facts) for key in fact.defaults}
    assert config["per_device_train_batch_size"] == 4
    given = {"output_dir", "run_name", "max_steps", "per_device_train_batch_size", "logging_steps", "use_cpu"}
    # Trainer itself evaluates then, and pins no memory where it trains on the CPU.
    given |= {"do_eval", "save_strategy", "disable_tqdm", "eval_strategy", "eval_steps", "eval_on_start"}
    assert set(config) - unset == given | {"dataloader_pin_memory"}
    assert total_steps_of(watched) == [6]
    assert [fact.name for fact in watched.of(Facts) if fact.name] == ["tiny"]
    (summary,) = [fact.summary for fact in watched.of(Facts) if fact.summary]
    assert "train_loss" in summary
    watched.wait_gone()


def test_huggingface_saves_and_stops_on_all_ranks(start: Start, runs_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    process = start(f"{HUGGINGFACE}\n    main({str(tmp_path / 'out')!r}, 10**6)", *TORCHRUN)
    watched = the_run(runs_dir)
    _, last = saved_then_stopped(watched, lambda path: (path / "model.safetensors").exists())
    ends_well(process)
    assert watched.started.world_size == 2
    for rank in (0, 1):
        assert max(curve(watched, rank, "loss")) == last
    watched.wait_gone()


LIGHTNING = """
    import sys, torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from tuiapp.integrations.lightning import TuiappCallback, TuiappLogger

    class Model(LightningModule):
        def __init__(self, width=4):
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(width, 1)
        def training_step(self, batch, index):
            loss = self.layer(batch[0]).square().mean()
            self.log("loss", loss)
            return loss
        def validation_step(self, batch, index):
            self.log("val/loss", self.layer(batch[0]).square().mean())
            self.log("val/batch", float(index), on_step=True, on_epoch=False)
        def on_train_epoch_end(self):
            self.log("step", self.current_epoch)
            self.log("by epoch", float(self.current_epoch))
        def test_step(self, batch, index):
            self.log("test/loss", self.layer(batch[0]).square().mean())
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def main(steps, *callbacks, devices=1, test=False):
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=4)
        trainer = Trainer(
            accelerator="cpu", devices=devices, max_steps=steps, logger=TuiappLogger("tiny"), log_every_n_steps=1,
            callbacks=[TuiappCallback(), *callbacks], enable_progress_bar=False, enable_checkpointing=bool(callbacks),
            strategy="ddp" if devices > 1 else "auto",
        )
        model = Model()
        if test:
            trainer.validate(model, loader)
        trainer.fit(model, loader, loader)
        if test:
            trainer.test(model, loader)
"""


def test_lightning_reports(start: Start, runs_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    saves = f"ModelCheckpoint({str(tmp_path)!r}, every_n_train_steps=5, save_top_k=-1)"
    ends_well(start(f"{LIGHTNING}\n    main(20, {saves}, test=True)"))
    watched = the_run(runs_dir)
    assert (watched.end().status, watched.end().summary.steps) == ("completed", 20)
    assert list(curve(watched, 0, "loss")) == list(range(1, 21))
    assert curve(watched, 0, "val/loss").keys() == {0, 16}
    # Of each evaluation the last batch.
    assert curve(watched, 0, "val/batch") == {0: 15.0, 16: 15.0}
    assert curve(watched, 0, "by epoch") == {0: 0.0, 1: 1.0}
    assert curve(watched, 0, "test/loss").keys() == {20}
    # Neither before nor after `fit`.
    assert curve(watched, 0, "epoch") == {step: float(step > 16) for step in range(1, 21)}
    assert config_of(watched) == {"width": 4}
    assert total_steps_of(watched) == [20]
    # Lightning names them by the `step` that the script has logged.
    names = ["epoch=0-step=5.ckpt", "epoch=0-step=10.ckpt", "epoch=0-step=15.ckpt", "epoch=1-step=0.ckpt"]
    assert [Path(save.name).name for save in watched.of(Checkpoint)] == names
    assert [save.step for save in watched.of(Checkpoint)] == [5, 10, 15, 20]
    assert all(save.bytes for save in watched.of(Checkpoint))
    watched.wait_gone()


@pytest.mark.parametrize("launcher", mostly_by_hand([TORCHRUN, ()], TORCHRUN), ids=["torchrun", "itself"])
def test_lightning_saves_and_stops_on_all_ranks(start: Start, runs_dir: Path, launcher: tuple[str, ...]) -> None:
    """Without a launcher Lightning starts the second rank itself, with the script's command line."""
    pytest.importorskip("lightning")
    process = start(f"{LIGHTNING}\n    main(-1, devices=2)", *launcher)
    watched = the_run(runs_dir)
    _, last = saved_then_stopped(watched)
    ends_well(process)
    assert watched.started.world_size == 2
    for rank in (0, 1):
        assert max(curve(watched, rank, "loss")) == last
    watched.wait_gone()


KERAS = """
    import keras, numpy as np
    from tuiapp.integrations.keras import TuiappCallback

    def main(*fits, path="", batches=1):
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)], name="tiny")
        model.compile("sgd", "mse", steps_per_execution=batches)
        x, y = np.random.rand(40, 4), np.random.rand(40, 1)
        callback = TuiappCallback(path)
        for epochs in fits:
            model.fit(x, y, batch_size=4, epochs=epochs, verbose=0, validation_data=(x, y), callbacks=[callback])
"""


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_reports(start: Start, runs_dir: Path, backend: str) -> None:
    ends_well(start(f"{KERAS}\n    main(2, 1)", KERAS_BACKEND=backend))
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    assert list(curve(watched, 0, "loss")) == list(range(1, 31))
    assert list(curve(watched, 0, "val/loss")) == [10, 20, 30]
    assert config_of(watched)["model"] == "tiny"
    assert config_of(watched)["optimizer/name"].lower() == "sgd"
    assert total_steps_of(watched) == [20, 30]
    watched.wait_gone()


def test_keras_reports_a_training_loop_of_ones_own(start: Start, runs_dir: Path) -> None:
    ends_well(
        start(
            """
        import keras
        from tuiapp.integrations.keras import TuiappCallback

        callbacks = keras.callbacks.CallbackList([TuiappCallback()], model=keras.Sequential(name="tiny"))
        callbacks.on_train_begin()
        for epoch in range(2):
            callbacks.on_epoch_begin(epoch)
            for batch in range(5):
                callbacks.on_train_batch_begin(batch)
                callbacks.on_train_batch_end(batch, {"loss": 1.0 + batch})
            callbacks.on_epoch_end(epoch, {"loss": 5.0, "val_loss": 2.0 + epoch})
        callbacks.on_train_end()
    """,
            KERAS_BACKEND="jax",
        )
    )
    watched = the_run(runs_dir)
    assert watched.end().status == "completed"
    assert curve(watched, 0, "loss") == {step: 1.0 + (step - 1) % 5 for step in range(1, 11)}
    assert curve(watched, 0, "val/loss") == {5: 2.0, 10: 3.0}
    assert (config_of(watched), total_steps_of(watched)) == ({"model": "tiny"}, [])
    watched.wait_gone()


@pytest.mark.parametrize("backend", mostly_by_hand(["jax", "torch"], "jax"))
def test_keras_saves_and_stops(start: Start, runs_dir: Path, tmp_path: Path, backend: str) -> None:
    path = "" if backend == "jax" else str(tmp_path / "models" / "{step}.keras")
    process = start(f"{KERAS}\n    main(10**6, path={path!r})", KERAS_BACKEND=backend)
    watched = the_run(runs_dir)
    first, last = saved_then_stopped(watched)
    ends_well(process)
    assert max(curve(watched, 0, "loss")) == last
    saves = [Path(save.name) for save in watched.of(Checkpoint)]
    names = ["step-{:08}.keras", "{}.keras"][bool(path)]
    assert [save.name for save in saves] == [names.format(step) for step in (first, last)]
    assert saves[0].parent == (tmp_path / "models" if path else watched.run.checkpoints)
    read = f"import keras, sys\nprint(keras.models.load_model({str(saves[1])!r}).optimizer.iterations.value)"
    ends_well(start(read, KERAS_BACKEND=backend))
    watched.wait_gone()


ACCELERATE = """
    import sys, torch, tuiapp
    from accelerate import Accelerator
    from tuiapp.integrations.accelerate import TuiappTracker

    accelerator = Accelerator(cpu=True, log_with=TuiappTracker("tiny"))
    accelerator.init_trackers("project", config={"lr": 0.01})
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    run, step = tuiapp.current(), 0
    while True:
        if run.should_checkpoint():
            accelerator.save_state(f"state-{step}")
            if accelerator.is_main_process:
                run.checkpoint(f"state-{step}", step)
        if run.should_stop():
            break
        step += 1
        loss = model(torch.randn(8, 4)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"loss": loss.item()}, step=step)
        if step % 10 == 0:
            accelerator.log({"by epoch": step / 10}, step=step // 10)
    accelerator.end_training()
"""


@pytest.mark.parametrize("launcher", mostly_by_hand([TORCHRUN, ()], TORCHRUN), ids=["two", "one"])
def test_accelerate_reports_saves_and_stops(
    start: Start, runs_dir: Path, tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    pytest.importorskip("accelerate")
    process = start(ACCELERATE, *launcher)
    watched = the_run(runs_dir)
    _, last = saved_then_stopped(watched, lambda path: (tmp_path / path / "model.safetensors").exists())
    ends_well(process)
    assert watched.started.world_size == (2 if launcher else 1)
    assert list(curve(watched, 0, "loss")) == list(range(1, last + 1))
    assert curve(watched, 0, "by epoch") == {epoch: float(epoch) for epoch in range(1, last // 10 + 1)}
    assert not curve(watched, 1, "loss")
    assert config_of(watched) == {"lr": 0.01}
    assert [fact.name for fact in watched.of(Facts) if fact.name] == ["tiny"]
    watched.wait_gone()


@pytest.mark.by_hand
def test_disabled_the_trainers_train(start: Start, runs_dir: Path) -> None:
    pytest.importorskip("lightning")
    for text in (f"{KERAS}\n    main(1)", f"{LIGHTNING}\n    main(3, ModelCheckpoint(save_last=True))"):
        said = ends_well(start(text, TUIAPP_MODE="disabled", KERAS_BACKEND="torch"))
        assert not [line for line in said.splitlines() if line.startswith("tuiapp: ")]
    assert not runs_dir.exists()
