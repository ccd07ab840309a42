"""What a launch derives from a configuration, once: written to `plan.json`, read by all of the run's processes."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS, MODELS
from tuiapp.trainers.config.datasets import Dataset, find_dataset
from tuiapp.trainers.config.division import devices_of, devices_of_nodes, examples_of_ranks
from tuiapp.trainers.config.files import read_limited, replace_unsynced
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.memory import jax_memory_fraction, split_weights
from tuiapp.trainers.config.mesh import Mesh, mesh_of
from tuiapp.trainers.config.normalization import Normalization, parse_normalization
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script import rank_processes

SCHEMA = 1

MAX_FILE_BYTES = 256 << 10

STEPS_BETWEEN_COMPARISONS = 100
"""At least: a comparison takes less than half of a step, which reads and writes each weight several times."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, and what follows from it and from its data."""

    schema: int = SCHEMA
    config: RunConfig
    facts: Dataset | None = msgspec.field(name="data")
    """The data as of the launch, whatever becomes of its file; None for a script, which brings its own."""
    python: str = ""
    """The absolute path of the ranks' interpreter; "" for that of the supervisor."""
    streamed: bool = False
    """Whether images are read batch by batch, rather than held on each device."""
    jax_memory_fraction: float | None = None
    """What JAX takes of each GPU's memory at its start, of the total, as less is free than it would take; None: its own
    share, or the user's. If each node picks its GPUs it decides this then.
    """
    processes: int
    """Rank processes: one per device, or one that owns them all; 0 if somebody else starts them."""
    part: tuple[int, int] | None = None
    """The part of a job whose nodes are runs of their own, as in `RunStarted`; None of other runs."""
    others: int | None = None
    """How many nodes are to join, of ranks that somebody else has started; 0: any number. None: none may."""
    steps_per_epoch: int
    """Full global batches in the training data; the remainder of an epoch is dropped. 0 if not known."""
    total_steps: int
    """0 if not known."""
    parameters: int | None = None
    """None if not known, as `flops_per_example`: the model is the user's own."""
    flops_per_example: int | None = None
    whole_weights: dict[str, str] = {}
    """Weights of a model of the catalog that are not split over a mesh, although they shall be → why."""
    examples: tuple[int, ...] = ()
    """How many examples of each global batch each rank takes, in their order; (): equally many."""
    normalization: Normalization | None = None
    """The inputs' normalization; None: there is none, or it is measured when the training data are opened."""

    @property
    def data(self) -> Dataset:
        """The data of a built-in trainer."""
        if self.facts is None:
            raise ValueError(f"a run of backend {self.config.backend} has no data set")
        return self.facts

    @property
    def world_size(self) -> int:
        """Ranks, or devices if a built-in trainer's one process owns them all."""
        return self.processes if self.processes and not BACKENDS[self.config.backend].builtin else self.config.devices

    def devices_of(self, node: int) -> int:
        """Returns how many devices a node has."""
        return devices_of(self.config, node)

    @property
    def ranks(self) -> list[int]:
        """The rank of each process: the first that it reports for."""
        return [rank for node in range(self.config.nodes) for rank in self.ranks_of(node)]

    def ranks_of(self, node: int) -> range:
        """Returns the ranks of a node's processes."""
        if not self.processes:
            return range(0)
        devices = devices_of_nodes(self.config)
        if self.world_size == self.config.devices:
            first = sum(devices[:node])
            return range(first, first + devices[node], 1 if self.processes == self.world_size else devices[node])
        return range(node, node + 1)

    def reported_by(self, rank: int) -> range:
        """Returns the ranks for which a process reports, `rank` the first: those of all devices that it owns."""
        ranks = [*self.ranks, self.world_size]
        return range(rank, ranks[ranks.index(rank) + 1])

    @property
    def left_out(self) -> int:
        """Training examples of an epoch that fill no global batch."""
        return self.facts.train_examples % self.config.global_batch_size if self.facts else 0

    @property
    def mesh(self) -> Mesh:
        return mesh_of(self.config.mesh, self.config.devices)

    @property
    def mesh_words(self) -> str:
        """Says how the devices are laid out, and which weights each has whole; "" without a mesh of their own."""
        if not self.config.mesh:
            return ""
        names: dict[str, list[str]] = {}
        for name, why in self.whole_weights.items():
            names.setdefault(why, []).append(name)
        kept = [f"whole on each device: {', '.join(weights)} ({why})" for why, weights in names.items()]
        return "; ".join([str(self.mesh), *kept])

    def batch_of(self, rank: int) -> int:
        """Returns how many examples of a global batch a rank, or device, takes; those along "model" have the same."""
        return self.examples[rank] if self.examples else self.config.global_batch_size // self.mesh.batch

    def rows_of(self, rank: int) -> slice:
        """Returns which examples of each global batch a rank takes."""
        first = sum(map(self.batch_of, range(rank)))
        return slice(first, first + self.batch_of(rank))

    def weight_of(self, rank: int) -> float:
        """Returns what a rank's mean loss counts, so that the mean over ranks is the batch's; 1 for an equal share."""
        return self.batch_of(rank) * self.config.devices / self.config.global_batch_size if self.examples else 1.0

    def examples_of(self, rank: int) -> float:
        """Returns a rank's share of a global batch's examples: those that several have in common count in parts."""
        return self.batch_of(rank) / self.mesh.model if self.mesh.model > 1 else self.batch_of(rank)

    @property
    def compares_replicas(self) -> bool:
        """Whether the devices' replicas of the model are compared now and then."""
        has_some = "check_replicas" in BACKENDS[self.config.backend].keys
        return self.config.check_replicas and has_some and self.config.devices > 1

    def epoch_of(self, step: int) -> int:
        """Returns the epoch of a step; both are counted from 1."""
        return (step - 1) // self.steps_per_epoch + 1

    def epochs_after(self, step: int) -> range:
        """Returns the epochs that have steps after this one, counted from 1; none after the last."""
        last = self.epoch_of(self.total_steps) if step < self.total_steps else 0
        return range(self.epoch_of(step + 1), last + 1)

    def ends_epoch(self, step: int) -> bool:
        return step % self.steps_per_epoch == 0 or step == self.total_steps

    def evaluates_after(self, step: int) -> bool:
        return self._is_due(step, self.config.eval_every) or step == self.total_steps

    def compares_after(self, step: int) -> bool:
        """Returns whether replicas are compared after a step: the last of an epoch, but not of each short one."""
        every = -(-STEPS_BETWEEN_COMPARISONS // self.steps_per_epoch)
        return self.compares_replicas and (self._is_due(step, every) or step == self.total_steps)

    @property
    def spaces_saves(self) -> bool:
        """Whether a checkpoint is left out soon after another; not of a run whose best one is exported."""
        return self.config.checkpoint_every < 0 and not self.config.early_stop and BACKENDS[self.config.backend].builtin

    def saves_after(self, step: int, *, due: bool = False) -> bool:
        """Returns whether a checkpoint is saved after a step without a request; `due`: the last is long enough ago."""
        every = abs(self.config.checkpoint_every)
        by_epochs = self._is_due(step, every) and (due or not self.spaces_saves)
        return by_epochs or (every > 0 and step == self.total_steps)

    def on_gpus(self, machine: Machine, uuids: Collection[str]) -> Plan:
        """Returns the plan for these of a machine's GPUs, as their memory is now."""
        gpus = [gpu for gpu in machine.gpus if gpu.uuid in uuids]
        return msgspec.structs.replace(self, jax_memory_fraction=jax_memory_fraction(self.config, gpus))

    def _is_due(self, step: int, epochs: int) -> bool:
        return epochs > 0 and step % (epochs * self.steps_per_epoch) == 0


def make_plan(config: RunConfig, data: Dataset | None = None, *, streamed: bool = False, python: str = "") -> Plan:
    """Derives the plan of a configuration; without `data` raises DatasetError if that cannot be found."""
    if not BACKENDS[config.backend].builtin:
        processes = rank_processes(config)
        return Plan(config=config, facts=None, python=python, processes=processes, steps_per_epoch=0, total_steps=0)
    data = data or find_dataset(config.dataset, config.context)
    steps_per_epoch = data.train_examples // config.global_batch_size
    steps = config.epochs * steps_per_epoch
    model, normalization = MODELS.get(config.model), parse_normalization(config.normalize)
    examples: tuple[int, ...] = ()
    # The values of a draft may not fit together.
    with suppress(ValueError):
        examples = examples_of_ranks(config)
    size = model.size(data.input_shape, data.classes) if model and model.task == data.task else None
    return Plan(
        config=config,
        facts=data,
        python=python,
        streamed=streamed,
        processes=rank_processes(config),
        examples=examples,
        steps_per_epoch=steps_per_epoch,
        total_steps=min(steps, config.max_steps) if config.max_steps else steps,
        parameters=size.parameters if size else None,
        flops_per_example=size.flops if size else None,
        whole_weights={
            name: why for name, _, _, why in (split_weights(config, data) if size and config.mesh else ()) if why
        },
        normalization=normalization.over(data.input_shape[2]) if normalization else None,
    )


def write_plan(path: Path, plan: Plan) -> None:
    """Writes `plan.json` atomically, as durable as run.toml, which it follows from; raises OSError."""
    replace_unsynced(path, msgspec.json.format(msgspec.json.encode(plan)) + b"\n")


def read_plan(path: Path) -> Plan:
    """Reads `plan.json`; raises OSError if it cannot be read, ValueError if it is no plan of this version."""
    try:
        plan = msgspec.json.decode(read_limited(path, MAX_FILE_BYTES), type=Plan)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error
    if plan.schema != SCHEMA:
        raise ValueError(f"{path} has schema {plan.schema}; this version of tuiapp reads {SCHEMA}")
    return plan
