"""A configuration being edited: the form's texts, and what follows from them on this machine."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast, get_args

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.division import examples_of_ranks
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.memory import MemoryEstimate, can_estimate, estimate_memory
from tuiapp.trainers.config.mesh import MEASURED, mesh_of
from tuiapp.trainers.config.options import ConfigError, Option, Problem, Value, format_value, shown
from tuiapp.trainers.config.placement import check_data, place, placement_problems
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.relevance import inapplicable_keys
from tuiapp.trainers.config.run_config import (
    OPTIONS,
    RunConfig,
    changed_keys,
    cross_check,
    to_mapping,
    to_toml_values,
    with_global_batch,
)
from tuiapp.trainers.config.script import rank_processes, subject
from tuiapp.trainers.config.script_syntax import MODULE, read_texts, split_words
from tuiapp.trainers.contract.sidecars import About, AboutError, split_tags
from tuiapp.trainers.experiments.space import (
    Axis,
    all_configs,
    check_draws,
    checks_of,
    combinations,
    names_several,
    read_axis,
    short_value,
)
from tuiapp.trainers.experiments.study import NAME as STUDY
from tuiapp.trainers.experiments.study import NAME_RULE as STUDY_RULE
from tuiapp.trainers.experiments.study import Pruner, Search, Study, lacks_optuna, stem_of
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.resume_point import check_weights
from tuiapp.trainers.state.text import format_bytes, join_words, plural, sanitize

Figure = TypeVar("Figure")

CHECKED_RUNS = 64
"""Most runs that are checked of a sweep that is edited: all are checked when it is launched."""
TEXTS = {"mesh", "devices_per_node", "shares", "normalize"}
"""Keys whose texts a plan reads: there is none while one of them is unreadable."""
OF_AN_EPOCH = {"dataset", "global_batch_size", "per_device_batch_size"}
"""Keys on which an epoch's steps depend."""
LISTED = 6
"""Most values of a key that are named."""

NAME = Option("Run", "Name", "what to call the run", text="line", key="name")
TAGS = Option("Run", "Tags", "words to find it by: sweep, lr", text="line", key="tags")
TRIALS = Option("Run", "Trials", "how many Optuna tries; empty: all", minimum=1, key="trials", kind="int")
PRUNE = Option(
    "Run", "Pruning", "how a search gives up hopeless trials", get_args(Pruner), key="prune", default="median"
)
METRIC = Option("Run", "Metric", "what trials are best by; empty: as earlier runs", key="metric")
OF_THE_RUN = {option.key: option for option in (NAME, TAGS, TRIALS, PRUNE, METRIC)}
"""Fields of the form that are no keys: no preset has them, and they change nothing in training."""
FIELDS = {**OPTIONS, **OF_THE_RUN}


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft is the form's content. Made by `examine`."""

    base: RunConfig  # the preset loaded, or the defaults
    config: RunConfig  # keys whose text cannot be parsed have the base's value
    placed: RunConfig | None = None  # with exact devices; None while the machine is unknown or unfit
    unreadable: frozenset[str] = frozenset()  # keys whose text is not an allowed value
    problems: Mapping[str, str] = field(default_factory=dict)  # key, or "" for none, → problem
    changed: frozenset[str] = frozenset()  # keys that differ from the base
    hidden: frozenset[str] = frozenset()  # keys that do not apply
    about: About = field(default_factory=About)  # the run
    axes: tuple[Axis, ...] = ()  # keys with several values: a sweep; `config` has the first of each
    search: Search | None = None  # of a sweep; None: every combination is a run
    metric: str = ""  # what a script's trials are best by; "" for what earlier runs suggest

    @property
    def is_sound(self) -> bool:
        """Whether the draft can run on some machine: required of a preset."""
        return not self.unreadable and not cross_check(self.config)

    @property
    def runs(self) -> int:
        """How many runs a launch begins."""
        return self.search.trials if self.search else math.prod(len(axis.values) for axis in self.axes)

    @property
    def not_in_words(self) -> Set[str]:
        """Fields whose text no command can have."""
        return self.unreadable | (OF_THE_RUN.keys() & self.problems.keys())

    @property
    def parameters(self) -> int | None:
        return self._unless({"dataset", "model"}, lambda: make_plan(self.config).parameters)

    @property
    def is_script(self) -> bool:
        return not BACKENDS[self.config.backend].builtin

    @property
    def batch_words(self) -> str:
        """How a global batch is divided over the devices; "" of a script."""
        if self.placed is None or self.is_script:
            return ""
        if examples := examples_of_ranks(self.placed):
            return f"{':'.join(map(str, examples))} examples a step"
        if self.placed.shares == MEASURED:
            return f"{self.placed.global_batch_size:,} examples a step, shared by speed"
        share = self.placed.global_batch_size // mesh_of(self.placed.mesh, self.placed.devices).batch
        return f"{share:,} examples a step on each"

    @property
    def mesh(self) -> str:
        """How the devices are laid out, in words; "" without a mesh of their own."""
        placed = self.placed
        if placed is None or not placed.mesh:
            return ""
        return self._unless({"dataset", "model"}, lambda: make_plan(placed).mesh_words) or ""

    @property
    def resolved(self) -> RunConfig:
        """The configuration with its global batch, as far as that is known."""
        return self.placed or with_global_batch(self.config)

    @property
    def steps_per_epoch(self) -> int | None:
        return self._unless(OF_AN_EPOCH, lambda: make_plan(self.resolved).steps_per_epoch or None)

    @property
    def left_out(self) -> int | None:
        return self._unless(OF_AN_EPOCH, lambda: make_plan(self.resolved).left_out)

    @property
    def total_steps(self) -> int | None:
        return self._unless(OF_AN_EPOCH | {"epochs", "max_steps"}, lambda: make_plan(self.resolved).total_steps or None)

    @property
    def memory(self) -> MemoryEstimate | None:
        placed = self.placed
        if placed is None or not can_estimate(placed):
            return None
        return self._unless({"dataset", "model"}, lambda: estimate_memory(placed))

    def _unless(self, keys: Set[str], figure: Callable[[], Figure]) -> Figure | None:
        """Returns a figure, or None when one of the keys it depends on is wrong or the data set's file is missing."""
        if self.problems.keys() & (keys | TEXTS):
            return None
        try:
            return figure()
        except DatasetError:
            return None

    def with_problems(self, problems: Iterable[Problem]) -> Draft:
        return replace(self, placed=None, problems={**self.problems, **in_words(problems)})


def to_texts(config: RunConfig) -> dict[str, str]:
    """Returns every key's value as the form shows it."""
    return {key: format_value(value) for key, value in to_mapping(config).items()}


def examine(texts: Mapping[str, str], base: RunConfig, machine: Machine | None, *, resumes: bool = False) -> Draft:
    """Checks the texts by key, each and together, and the machine if known; `base` replaces what cannot be parsed.

    `texts` may have those of `OF_THE_RUN` too. A run that `resumes` no longer needs the weights that it began with.
    """
    keys = {key: text for key, text in texts.items() if key not in OF_THE_RUN}
    search, search_problems = _read_search(texts)
    values, axes, problems = _read(keys, base, draws=search is not None)
    about, not_allowed = _read_about(texts)
    # A key that does not apply must neither block the run nor appear in the command.
    chosen = {**to_mapping(base), **values}
    idle = inapplicable_keys(chosen)
    values = {key: value for key, value in values.items() if key not in idle}
    axes = [axis for axis in axes if axis.key not in idle]
    problems = [problem for problem in problems if problem.key not in idle]
    unreadable = frozenset(problem.key for problem in problems)
    config = msgspec.structs.replace(base, **values)
    # A text that cannot be read may have been to be several values.
    if axes or any("," in keys.get(key, "") or ".." in keys.get(key, "") for key in unreadable):
        not_allowed |= search_problems
    else:
        search = None
        idle.add(TRIALS.key)
    if not search:
        idle.add(PRUNE.key)
    if not search or BACKENDS[config.backend].builtin:
        idle.add(METRIC.key)
    here = placement_problems(config, machine) if machine is not None else []
    weights = [] if resumes else check_weights(config)
    for further in (check_data(config), weights, here, cross_check(config)):
        # What depends on a wrong key is wrong too: report the cause alone.
        wrong = {problem.key for problem in problems}
        problems += [problem for problem in further if not wrong & problem.keys]
    if axes and not problems:
        problems = _check_sweep(config, axes, machine, draws=bool(search))
    if axes and about.name and not STUDY.fullmatch(about.name):
        not_allowed[NAME.key] = f"{shown(about.name)} is no name of a sweep: use {STUDY_RULE}."
    placed = place(config, machine) if machine is not None and not problems else None
    has_choice = machine is not None and bool(machine.gpus) and config.platform != "cpu"
    if not config.device_ids and not has_choice and "device_ids" not in unreadable:
        idle.add("device_ids")
    return Draft(
        base=base,
        config=config,
        placed=placed,
        unreadable=unreadable,
        problems={**in_words(problems), **not_allowed},
        about=about,
        axes=tuple(axes),
        search=search,
        metric="" if METRIC.key in idle else texts.get(METRIC.key, "").strip(),
        changed=unreadable | changed_keys(config, base).keys() | {_field_of(axis) for axis in axes},
        hidden=frozenset(idle),
    )


def _field_of(axis: Axis) -> str:
    """Returns the form's field in which a key is: that of a script's own value has all of them."""
    return axis.key if axis.key in OPTIONS else "values"


def _check_sweep(config: RunConfig, axes: Sequence[Axis], machine: Machine | None, *, draws: bool) -> list[Problem]:
    """Returns the problems of a sweep's combinations; of very many those of each key alone, as long as it is edited."""
    checks = checks_of(machine) if machine is not None else []
    if draws:
        return check_draws(config, axes, checks)
    try:
        combined = combinations(axes)
        if len(combined) > CHECKED_RUNS:
            combined = [{axis.key: value} for axis in axes for value in axis.values[:CHECKED_RUNS]]
        all_configs(config, combined, checks)
    except ConfigError as error:
        return error.problems
    return []


def several_words(draft: Draft, key: str) -> str:
    """Returns what a field with several values says of them: "3 values: 0.1, 0.03, 0.01"; "" of any other."""
    axes = [axis for axis in draft.axes if _field_of(axis) == key]
    counts = [plural(len(axis.values), "value") if axis.values else "drawn from" for axis in axes]
    return sanitize("; ".join(f"{count}: {_listed(axis)}" for count, axis in zip(counts, axes, strict=True)))


def _listed(axis: Axis) -> str:
    if not axis.values:
        return axis.text
    values = list(map(short_value, axis.values))
    return ", ".join(values if len(values) <= LISTED else [*values[: LISTED - 2], "…", values[-1]])


def sweep_words(draft: Draft) -> str:
    """Describes a sweep: "6 runs: learning_rate 0.1, 0.01 × seed 0, 1, 2"."""
    axes = " × ".join(f"{axis.key} {_listed(axis)}" for axis in draft.axes)
    if search := draft.search:
        pruning = "without pruning" if search.pruner == "none" else f"{search.pruner} pruning"
        return sanitize(f"{plural(search.trials, 'trial')} by Optuna: {axes} · {pruning}")
    return sanitize(f"{plural(draft.runs, 'run')}: {axes}")


def study_of(draft: Draft, preset: str | None) -> Study:
    """Returns the study that a launch begins."""
    return Study(
        name=draft.about.name or _stem(draft, preset),
        axes={axis.key: axis.text for axis in draft.axes},
        config=to_toml_values(draft.config),
        search=draft.search,
        metric=draft.metric,
        rises=metric(draft.metric).rises,
        tags=draft.about.tags,
    )


def _stem(draft: Draft, preset: str | None) -> str:
    """Returns what a study is named after: a script, but of one that is a preset of the user's the preset."""
    if draft.is_script and draft.config.script != draft.base.script:
        return stem_of(subject(draft.config))
    return stem_of(preset or "defaults")


def in_words(problems: Iterable[Problem]) -> dict[str, str]:
    """Returns problems by the form's keys; "" for a key that the form does not have."""
    texts: dict[str, str] = {}
    for problem in problems:
        key, text = problem.key.removeprefix("--"), problem.message
        if key not in FIELDS:
            key, text = "", str(problem)
            text = text[:1].upper() + text[1:]
        texts[key] = f"{texts[key]} {text}" if key in texts else text
    return texts


def command_line(draft: Draft, preset: str | None, runs_dir: str | None, *, like: bool = False) -> str | None:
    """Returns the equivalent `tuiapp run` command, quoted for a shell; None while a field prevents it.

    A `preset` of None is the defaults; with `like` it is a run's name. A `runs_dir` of None is the default directory.
    """
    if draft.not_in_words:
        return None
    verb = "sweep" if draft.axes else "run"
    command = ["tuiapp", verb, *(["--like"] if like else []), *([preset] if preset else [])]
    changes, passed = changed_keys(draft.config, draft.base), list[str]()
    for axis in draft.axes:
        changes.pop(axis.key, None)
    if any(_field_of(axis) == "values" for axis in draft.axes):
        swept = {axis.key for axis in draft.axes}
        fixed = {key: value for key, value in read_texts(draft.config.values).items() if key not in swept}
        changes.pop("values", None)
        changes |= {"values": shlex.join(f"{key}={value}" for key, value in fixed.items())} if fixed else {}
    if draft.is_script and not preset:
        script = draft.config.script
        by_name = script.startswith(MODULE) or script.endswith(".py")
        if by_name:
            named = script.startswith(MODULE) and not draft.axes
            command += ["-m", script.removeprefix(MODULE)] if named else [script]
        for key in ("backend", "script") if by_name else ():
            changes.pop(key, None)
    if draft.is_script and "arguments" in changes and "arguments" not in draft.problems:
        passed = ["--", *split_words(str(changes.pop("arguments")))]
    for key, value in changes.items():
        command += ["--set", f"{key}={format_value(value)}"]
    for axis in draft.axes:
        command += ["--search" if draft.search else "--grid", f"{axis.key}={axis.text}"]
    if search := draft.search:
        command += ["--trials", str(search.trials)]
        command += ["--prune", search.pruner] if search.pruner != PRUNE.default else []
    command += ["--metric", draft.metric] if draft.metric else []
    command += ["--name", draft.about.name] if draft.about.name else []
    for tag in draft.about.tags:
        command += ["--tag", tag]
    if runs_dir is not None:
        command += ["--runs-dir", runs_dir]
    return shlex.join([*command, *passed])


def device_words(config: RunConfig, machine: Machine) -> str:
    """Describes the devices of a placed configuration."""
    chosen = [gpu.number for gpu in machine.gpus if gpu.uuid in config.device_ids]
    numbers = f": {', '.join(chosen)}" if 0 < len(chosen) < len(machine.gpus) else ""
    backend, several = BACKENDS[config.backend], config.devices != 1
    if not backend.builtin:
        count = rank_processes(config)
        processes = "1 process" if count == 1 else f"{count} processes"
        return f"{processes} on {plural(config.devices, 'GPU') if config.platform == 'cuda' else 'the CPU'}{numbers}"
    if config.platform == "cuda":
        by = f" ({backend.collectives})" if backend.collectives else ""
        return f"{config.devices} GPUs{by}{numbers}" if several else f"1 GPU{numbers}"
    if backend.process_per_device:
        return f"{config.devices} CPU ranks (gloo)" if several else "1 CPU rank"
    return f"{config.devices} virtual CPU devices" if several else "1 CPU device"


def _read(
    texts: Mapping[str, str], base: RunConfig, *, draws: bool
) -> tuple[dict[str, Value], list[Axis], list[Problem]]:
    values: dict[str, Value] = {}
    axes: list[Axis] = []
    problems: list[Problem] = []
    plain: dict[str, object] = {**to_mapping(base), "backend": texts.get("backend", base.backend).partition(",")[0]}
    for key, text in texts.items():
        try:
            if key == "values" and not BACKENDS.get(str(plain["backend"]), BACKENDS["torch-ddp"]).builtin:
                values[key], of_script = _read_own(text, plain, draws=draws)
                axes += of_script
            elif names_several(OPTIONS[key], text):
                axis = read_axis({**plain, "backend": RunConfig().backend}, key, text, draws=draws)
                values[key] = axis.probes[0]
                axes += [axis] if len(axis.values) != 1 else []
            else:
                values[key] = _parse(OPTIONS[key], text)
        except ConfigError as error:
            problems += error.problems
    return values, axes, problems


def _read_own(text: str, plain: Mapping[str, object], *, draws: bool) -> tuple[str, list[Axis]]:
    """Reads a script's own values: those of one each, and the first of several, with what is swept."""
    try:
        values = read_texts(text)
    except ValueError as error:
        raise ConfigError([Problem("values", str(error))]) from None
    axes, problems = list[Axis](), list[Problem]()
    for name, value in values.items():
        try:
            axis = read_axis(plain, name, value, draws=draws)
        except ConfigError as error:
            problems += [Problem("values", str(problem)) for problem in error.problems]
        else:
            if len(axis.values) != 1:
                axes.append(axis)
                values[name] = format_value(axis.probes[0])
    if problems:
        raise ConfigError(problems)
    return shlex.join(f"{name}={value}" for name, value in values.items()) if axes else text, axes


def _read_about(texts: Mapping[str, str]) -> tuple[About, dict[str, str]]:
    """Returns the name and the tags that are allowed, and the problems of those that are not, by field."""
    values = {NAME.key: texts.get(NAME.key, "").strip(), TAGS.key: split_tags(texts.get(TAGS.key, ""))}
    about, problems = About(), dict[str, str]()
    for key, value in values.items():
        try:
            about = msgspec.structs.replace(about, **{key: value})
        except AboutError as error:
            problems[key] = str(error)
    return about, problems


def _read_search(texts: Mapping[str, str]) -> tuple[Search | None, dict[str, str]]:
    """Returns the search that is asked for, if one is, and its problems by field."""
    if not (text := texts.get(TRIALS.key, "").strip()):
        return None, {}
    try:
        trials = cast(int, TRIALS.parse(text))
    except ConfigError as error:
        return None, {TRIALS.key: error.problems[0].message}
    search = Search(trials=trials, parallel=0, pruner=cast(Pruner, texts.get(PRUNE.key, PRUNE.default)))
    return search, {TRIALS.key: lack} if (lack := lacks_optuna()) else {}


def _parse(option: Option, text: str) -> Value:
    if not text.strip() and option.kind in ("int", "float"):
        raise ConfigError([Problem(option.key, f"is empty; it must be {option.allowed()}.")])
    return option.parse(text)


def machine_words(machine: Machine | None) -> str:
    """Describes this machine on one line."""
    if machine is None:
        return "detecting devices…"
    names = Counter(sanitize(gpu.name) for gpu in machine.gpus)
    why = f": {sanitize(machine.gpu_problem)}" if machine.gpu_problem else ""
    return join_words(
        [
            plural(machine.cpu_cores, "CPU core"),
            f"{format_bytes(machine.memory_total_bytes)} of memory",
            *(f"{count} × {name}" for name, count in names.items()),
            sanitize(machine.gpu_limit),
            f"driver {sanitize(machine.driver)}" if machine.driver else "",
            "" if machine.gpus else f"no GPU{why}",
        ]
    )
