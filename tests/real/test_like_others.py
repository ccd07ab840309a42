"""Twelve training scripts: what tuiapp has of their metrics, and what TensorBoard and wandb have read or written."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from tests.kit.harness import launched, resumed
from tests.kit.wandb_file import wandb_history
from tuiapp.cli import main
from tuiapp.library.export import export_to
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.nightly


Curves = dict[str, list[tuple[int, float]]]
"""Name → step and value of each report, in their order."""


@dataclass(frozen=True)
class Script:
    text: str
    read: Callable[[Path], Curves]
    """What the other program has of the metrics, by the names and steps that they have here."""
    settings: Mapping[str, object]
    package: str = ""
    besides: frozenset[str] = frozenset()
    """What tuiapp alone has."""
    restarts: bool = False
    exact: bool = False
    """In double precision."""
    last_of_step: frozenset[str] = frozenset()


def board(directory: Path) -> dict[str, Curves]:
    """Directory below → tag → what TensorBoard reads, of all directories with event files."""
    found: dict[str, Curves] = {}
    for place in sorted({path.parent for path in directory.rglob("*tfevents*")}):
        read = EventAccumulator(str(place), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        curves = {tag: [(each.step, each.value) for each in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
        for tag in read.Tags()["tensors"]:
            plugin = read.SummaryMetadata(tag).plugin_data.plugin_name
            if plugin in ("scalars", ""):
                values = [(each.step, make_ndarray(each.tensor_proto)) for each in read.Tensors(tag)]
                curves[tag] = [(step, float(value.reshape(()))) for step, value in values]
        found[str(place.relative_to(directory))] = curves
    return found


def of_board(directory: Path, name: Callable[[str, str], str]) -> Curves:
    return {
        name(place, tag): curve for place, curves in board(directory / "logs").items() for tag, curve in curves.items()
    }


def by_tag(directory: Path) -> Curves:
    return of_board(directory, lambda place, tag: tag if place == "." else f"{place}/{tag}")


PLAIN = Script(
    """
    import torch
    from torch.utils.tensorboard import SummaryWriter
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    x = torch.randn(64, 4)
    y = x.sum(1, keepdim=True)
    writer = SummaryWriter("logs")
    writer.add_graph(model, x)
    step = 0
    for epoch in range(4):
        for batch in torch.randperm(64).split(8):
            loss = (model(x[batch]) - y[batch]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            writer.add_scalar("Loss/train", loss, step)
            writer.add_scalar("lr", schedule.get_last_lr()[0], step)
            writer.add_scalar("grad_norm", norm, step)
            step += 1
        writer.add_scalar("Loss/val", (model(x) - y).square().mean(), step)
        writer.add_histogram("weights", model[0].weight, epoch)
    writer.close()
    """,
    by_tag,
    {"tensorboard_dir": "logs"},
)

ODD = Script(
    """
    import math, numpy as np
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter("logs", flush_secs=1)
    other = SummaryWriter("logs/probe")
    for step in range(12):
        writer.add_scalar("weird name [x] (µ)/é", -0.0 if step % 2 else 0.1 * step, step)
        writer.add_scalar("nan", math.nan if step % 3 else step, step)
        writer.add_scalar("infinite", [math.inf, -math.inf, 1e30, 3.4e38][step % 4], step)
        writer.add_scalar("double", 1e300 * step, step, double_precision=True)
        writer.add_scalar("new", 0.25 * step, step, new_style=True)
        writer.add_scalars("pair", {"a": step, "b": math.nan}, step)
        writer.add_text("reply", "hello", step)
        writer.add_image("picture", np.full((3, 4, 4), step / 12), step)
        other.add_scalar("depth", step, 10**12 + step)
    for value in (1, 2, 3):
        writer.add_scalar("without a step", value)
    writer.add_hparams({"lr": 0.1}, {"hparam/accuracy": 0.5, "hparam/loss": math.nan})
    writer.close()
    other.close()
    """,
    lambda directory: of_board(
        directory, lambda place, tag: f"{place}/{tag}" if place.startswith(("pair", "probe")) else tag
    ),
    {"tensorboard_dir": "logs"},
)

RESTARTED = Script(
    """
    import os
    from torch.utils.tensorboard import SummaryWriter
    again = "TUIAPP_RESUME" in os.environ
    begin = 6 if again else 0
    writer = SummaryWriter("logs", purge_step=begin if again else None)
    for step in range(begin, begin + 10):
        writer.add_scalar("loss", (1 if again else 100) / (step + 1), step)
        if step % 4 == 3:
            writer.add_scalar("val/loss", (2 if again else 200) / (step + 1), step)
    if not again:
        writer.add_scalar("once", 1, 2)
        writer.add_scalar("once", 1, 9)
    writer.close()
    raise SystemExit(0 if again else 3)
    """,
    by_tag,
    {"tensorboard_dir": "logs"},
    restarts=True,
)

TWO_AXES = Script(
    """
    from torch.utils.tensorboard import SummaryWriter
    with SummaryWriter("logs") as writer:
        writer.add_scalar("model/parameters", 1.5e6, 0)
        for step in range(1, 61):
            writer.add_scalar("train/loss", 1 / step, step)
            if step % 20 == 0:
                writer.add_scalar("val/loss", 2 / step, step // 20)
                writer.add_scalar("epoch", step / 20, step)
        # Late: of earlier checkpoints, the best one last, and once more.
        for step in (40, 60, 20, 20):
            writer.add_scalar("bleu", step / 100 + 0.001, step)
    """,
    by_tag,
    {"tensorboard_dir": "logs"},
)

VALIDATION = Script(
    """
    import math
    from torch.utils.tensorboard import SummaryWriter
    with SummaryWriter("logs") as writer:
        for step in range(1000, 6000, 1000):
            writer.add_scalars("benchmarks", {"mmlu": step / 1e4, "gsm8k": math.nan if step == 3000 else 0.1}, step)
            writer.add_scalar("eval/loss", 3000 / step, step)
    """,
    lambda directory: of_board(directory, lambda place, tag: tag if place == "." else f"{place}/{tag}"),
    {"tensorboard_dir": "logs"},
)

RANKS = Script(
    """
    import os, torch, torch.distributed as dist
    from torch.utils.tensorboard import SummaryWriter
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    writer = SummaryWriter(f"logs/rank{rank}")
    for step in range(30):
        loss = torch.tensor(1.0 + rank + step)
        writer.add_scalar("loss", loss, step)
        dist.all_reduce(loss)
        if rank == 0:
            writer.add_scalar("loss/mean", loss / 2, step)
    writer.close()
    dist.destroy_process_group()
    """,
    lambda directory: of_board(directory, lambda place, tag: tag if place == "rank0" else f"{place}/{tag}"),
    {"tensorboard_dir": "logs", "devices": 2, "processes": "per-device"},
)

LIGHTNING = """
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import TensorBoardLogger
    from tuiapp.integrations.lightning import TuiappCallback, TuiappLogger
    from torch.utils.data import DataLoader, TensorDataset

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def loss(self, batch):
            return self.layer(batch[0]).square().mean()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def loader(size):
        return DataLoader(TensorDataset(torch.randn(size, 4)), batch_size=4)

    def trainer(**more):
        loggers = [TensorBoardLogger(".", "logs", ""), TuiappLogger()]
        return Trainer(
            accelerator="cpu", devices=1, log_every_n_steps=1, logger=loggers, callbacks=[TuiappCallback()],
            enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False, **more,
        )
    torch.manual_seed(0)
"""

BY_BATCH = Script(
    f"""{LIGHTNING}
    class Batches(Model):
        def training_step(self, batch, index):
            loss = self.loss(batch)
            self.log("train_loss", loss, on_step=True, on_epoch=True)
            self.log("odd", float("nan") if index % 2 else float("inf"), on_step=True)
            return loss
        def validation_step(self, batch, index):
            self.log("val_loss", self.loss(batch))
            self.log("val_acc", 0.5 + self.current_epoch / 10)
    trainer(max_epochs=3, accumulate_grad_batches=2, val_check_interval=4).fit(Batches(), loader(32), loader(8))
    """,
    # Here steps are counted from 1.
    lambda directory: {name: [(step + 1, value) for step, value in curve] for name, curve in by_tag(directory).items()},
    {},
    "lightning",
)

BY_EPOCH = Script(
    f"""{LIGHTNING}
    class Epochs(Model):
        def training_step(self, batch, index):
            loss = self.loss(batch)
            self.log("train_loss", loss)
            return loss
        def on_train_epoch_end(self):
            self.log_dict({{"step": float(self.current_epoch), "by epoch": 1.0 + self.current_epoch}})
        def test_step(self, batch, index):
            self.log("test_loss", self.loss(batch))
    tried, model = trainer(max_epochs=3), Epochs()
    tried.fit(model, loader(16))
    tried.test(model, loader(8))
    """,
    # By epoch is what the script has given a step of its own; a test is of no epoch, and counts no step.
    lambda directory: {
        name: [
            (step + (name not in ("by epoch", "test_loss")), value)
            for step, value in curve
            if step < 12 or name != "epoch"
        ]
        for name, curve in by_tag(directory).items()
    },
    {},
    "lightning",
)

TRANSFORMERS = Script(
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from tuiapp.integrations.huggingface import TuiappCallback
    torch.manual_seed(0)
    tokens = torch.randint(0, 50, (64, 8))
    data = [{"input_ids": row, "labels": int(row[0] > 25)} for row in tokens]
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    args = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=2,
        use_cpu=True, save_strategy="no", report_to="tensorboard", disable_tqdm=True, eval_strategy="steps",
        eval_steps=5, eval_on_start=True,
    )
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
    sets = {"short": data[:8], "long": data[8:32]}
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=sets, callbacks=[TuiappCallback()])
    trainer.train()
    trainer.evaluate()
    trainer.evaluate(data[:4], metric_key_prefix="test")
    """,
    # What it says of the whole is the run's summary; before the first step there is no epoch.
    lambda directory: {
        name: [each for each in curve if name != "epoch" or each[0]]
        for name, curve in of_board(directory, lambda _, tag: tag.removeprefix("train/")).items()
        if not name.startswith("train_") and name != "total_flos"
    },
    {"environment": "TENSORBOARD_LOGGING_DIR=logs"},
    "transformers",
)

ACCELERATE = Script(
    """
    from accelerate import Accelerator
    from tuiapp.integrations.accelerate import TuiappTracker
    accelerator = Accelerator(cpu=True, log_with=["tensorboard", TuiappTracker()], project_dir=".")
    accelerator.init_trackers("logs", config={"lr": 0.01, "epochs": 3})
    step = 0
    for epoch in range(3):
        for batch in range(10):
            step += 1
            accelerator.log({"loss/current": 1 / step, "lr": 0.1 / step}, step=step)
        accelerator.log({"loss/epoch": 10.0 + epoch, "val": {"f1": 0.1 * epoch, "em": float("inf")}}, step=epoch + 1)
        accelerator.log({"loss/average": 1 / (epoch + 1)}, step=step)
    accelerator.end_training()
    """,
    lambda directory: of_board(directory, lambda place, tag: tag if place == "." else place.replace("_", "/")),
    {},
    "accelerate",
)

KERAS = Script(
    """
    import json, keras, numpy as np
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.compat.proto.event_pb2 import Event
    from tuiapp.integrations.keras import TuiappCallback

    class Board(keras.callbacks.Callback):
        # What keras.callbacks.TensorBoard writes, which needs TensorFlow.
        def on_train_begin(self, logs=None):
            self.writers = {name: EventFileWriter(f"logs/{name}") for name in ("train", "validation")}
        def write(self, where, summary, step):
            self.writers[where].add_event(Event(step=step, summary=summary))
        def on_epoch_end(self, epoch, logs=None):
            for name, value in logs.items():
                where = "validation" if name.startswith("val_") else "train"
                self.write(where, scalar_pb(f"epoch_{name.removeprefix('val_')}", value), epoch)
            self.write("train", scalar_pb("epoch_learning_rate", 0.01), epoch)
            self.write("train", text_pb("notes", f"epoch {epoch}"), epoch)
        def on_train_end(self, logs=None):
            for writer in self.writers.values():
                writer.close()

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.random.rand(40, 4)
    model.fit(
        x, x[:, :1], batch_size=4, epochs=3, verbose=0, validation_data=(x, x[:, :1]),
        callbacks=[TuiappCallback(), Board()],
    )
    json.dump(model.history.history, open("history.json", "w"))
    """,
    lambda directory: (
        of_board(directory, lambda place, tag: tag if place == "train" else f"{place}/{tag}")
        | {
            name.replace("val_", "val/"): [(10 * epoch, value) for epoch, value in enumerate(curve, 1)]
            for name, curve in json.loads((directory / "history.json").read_text()).items()
        }
    ),
    {"tensorboard_dir": "logs", "environment": "KERAS_BACKEND=jax"},
    besides=frozenset({"epoch"}),
    last_of_step=frozenset({"loss", "mae"}),
)

WANDB = Script(
    """
    import os, sys, math, numpy as np, torch
    import wandb, tuiapp
    for module in (wandb, tuiapp):
        run = module.init(project="demo", config={"lr": 0.1, "opt": {"name": "adam"}}, dir=os.getcwd())
        module.define_metric("val/*", step_metric="epoch")
        for step in range(3000):
            values = {"loss": 1 / (step + 1), "count": step, "flag": step % 2 == 0, "single": np.float32(0.1)}
            if step % 1000 == 999:
                held_out = torch.tensor(2.5 / step, dtype=torch.float64)
                module.log({"val/loss": held_out, "epoch": step // 1000}, commit=False)
                module.log({"odd": [math.nan, math.inf, -math.inf][step // 1000], "large": 1e300}, commit=False)
            if step % 500 == 0:
                values["nested"] = {"deep": {"er": np.float64(step)}}
            module.log(values)
        module.log({"test/loss": 0.25}, step=5000)
        module.finish()
    """,
    lambda directory: {
        # Without a step they are counted from 0 there, from 1 here.
        name.replace(".", "/"): [(step + (step < 3000), value) for step, value in curve]
        for name, curve in of_wandb(directory / "wandb", "_step").items()
    },
    {"environment": "WANDB_MODE=offline WANDB_SILENT=true WANDB_ERROR_REPORTING=false"},
    "wandb",
    exact=True,
)


def of_wandb(directory: Path, axis: str) -> Curves:
    (file,) = directory.glob("offline-run-*/*.wandb")
    found: Curves = defaultdict(list)
    for row in wandb_history(file):
        for name, value in row.items():
            if not name.startswith("_"):
                found[name].append((int(row[axis]), float(value)))
    return found


SCRIPTS = {
    "a plain loop": PLAIN,
    "odd values": ODD,
    "started again": RESTARTED,
    "two axes": TWO_AXES,
    "validation alone": VALIDATION,
    "two ranks": RANKS,
    "Lightning": BY_BATCH,
    "Lightning by epoch": BY_EPOCH,
    "transformers": TRANSFORMERS,
    "Accelerate": ACCELERATE,
    "Keras": KERAS,
    "wandb": WANDB,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_every_value_is_where_others_have_it(
    script: Script, tmp_path: Path, runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if script.package:
        pytest.importorskip(script.package)
    run = run_script(script, tmp_path, runs_dir)
    theirs = script.read(tmp_path)
    assert theirs
    logged = exported(run, tmp_path / "all.jsonl")
    assert set(logged) - script.besides == set(theirs)
    for name, curve in theirs.items():
        if name in script.last_of_step:
            assert_same(list(dict(logged[name]).items())[9::10], curve, name, exact=script.exact)
        elif not script.restarts:
            assert_same(logged[name], curve, name, exact=script.exact)
    capsys.readouterr()
    assert main(["metrics", str(run.path), "--json", "--points", "100000"]) == 0
    drawn = json.loads(capsys.readouterr().out)["metrics"]
    for name, curve in drawn_by_others(theirs).items():
        whole = dict(sorted(dict(curve).items()))
        finite = {step: value for step, value in whole.items() if np.isfinite(value)}
        assert sum(drawn[name]["not_finite"].values()) == len(whole) - len(finite)
        if name not in script.last_of_step and max(whole) - min(whole) < 2048:
            assert drawn[name]["steps"] == list(finite), name
            assert drawn[name]["values"] == pytest.approx(list(finite.values()), rel=5e-6), name

    export_to(tmp_path / "board", run, "metrics", "tensorboard")
    read = board(tmp_path / "board")
    again = {
        name if place == "." else f"{place}/{name}": curve for place in read for name, curve in read[place].items()
    }
    for name, curve in theirs.items():
        if name not in script.last_of_step:
            assert_same(again[name], curve, name)
    if script is WANDB:
        export_to(tmp_path / "offline", run, "metrics", "wandb-offline")
        again = of_wandb(tmp_path / "offline", "step")
        for name, curve in theirs.items():
            assert_same(again[name], curve, name, exact=True)


def drawn_by_others(theirs: Curves) -> Curves:
    """The mean over ranks; of a step reported twice the last counts."""
    others = {name.removeprefix("rank1/"): curve for name, curve in theirs.items() if name.startswith("rank1/")}
    means = {
        name: [(step, (value + other) / 2) for (step, value), (_, other) in zip(theirs[name], curve, strict=True)]
        for name, curve in others.items()
    }
    return {name: curve for name, curve in (theirs | means).items() if not name.startswith("rank1/")}


def run_script(script: Script, directory: Path, runs_dir: Path) -> RunDir:
    path = directory / "train.py"
    path.write_text(dedent(script.text))
    config = RunConfig(
        backend="script", script=str(path), platform="cpu", working_directory=str(directory),
        **{"processes": "one", **script.settings},  # type: ignore[arg-type]
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        end = run.end()
    if script.restarts:
        assert end.status == "failed"
        with resumed(run.run) as again:
            end = again.end()
    assert end.status == "completed", end
    return run.run


def exported(run: RunDir, path: Path) -> Curves:
    """What other ranks than the first report has their number before its name."""
    export_to(path, run, "metrics", "jsonl")
    found: Curves = defaultdict(list)
    for row in map(json.loads, path.read_text().splitlines()):
        assert row["joined"] == 1
        rank = f"rank{row['rank']}/" if row["rank"] else ""
        for name in row.keys() - {"attempt", "time", "rank", "step", "steps", "joined"}:
            found[rank + name].append((row["step"], float(row[name])))
    return found


def assert_same(
    ours: list[tuple[int, float]], theirs: list[tuple[int, float]], name: str, *, exact: bool = False
) -> None:
    assert [step for step, _ in ours] == [step for step, _ in theirs], name
    with np.errstate(over="ignore"):
        kinds = np.float64 if exact and name != "single" else np.float32
        mine, others = (np.array([value for _, value in curve], kinds) for curve in (ours, theirs))
    assert np.array_equal(mine, others, equal_nan=True), (name, mine, others)
