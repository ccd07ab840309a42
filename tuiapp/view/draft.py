"""A configuration being edited: the form's texts, and what follows from them on this machine."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from trainers.config.catalog import BACKENDS
from trainers.config.data_files import DatasetError
from trainers.config.machine import Machine
from trainers.config.memory import MemoryEstimate, can_estimate, estimate_memory
from trainers.config.options import ConfigError, Option, Problem, Value, format_value
from trainers.config.placement import check_data, place, placement_problems
from trainers.config.plan import make_plan
from trainers.config.relevance import inapplicable_keys
from trainers.config.run_config import OPTIONS, RunConfig, changed_keys, cross_check, to_mapping
from trainers.config.script import rank_processes
from trainers.config.script_syntax import MODULE, split_words
from trainers.contract.about import About, AboutError, split_tags
from trainers.state.text import format_bytes, join_words, plural, sanitize

Figure = TypeVar("Figure")

NAME = Option("Run", "Name", "what to call the run", text="line", key="name")
TAGS = Option("Run", "Tags", "words to find it by: sweep, lr", text="line", key="tags")
OF_THE_RUN = {option.key: option for option in (NAME, TAGS)}
"""Fields of the form that are no keys: no preset has them, and they change nothing in training."""
FIELDS = {**OPTIONS, **OF_THE_RUN}


@dataclass(frozen=True, slots=True)
class Draft:
    """The form's content. Made by `examine`."""

    base: RunConfig  # the preset loaded, or the defaults
    config: RunConfig  # keys whose text cannot be parsed have the base's value
    placed: RunConfig | None = None  # with exact devices; None while the machine is unknown or unfit
    unreadable: frozenset[str] = frozenset()  # keys whose text is not an allowed value
    problems: Mapping[str, str] = field(default_factory=dict)  # key, or "" for none, → problem
    changed: frozenset[str] = frozenset()  # keys that differ from the base
    hidden: frozenset[str] = frozenset()  # keys that do not apply
    about: About = field(default_factory=About)  # the run

    @property
    def is_sound(self) -> bool:
        """Whether it can run on some machine: required of a preset."""
        return not self.unreadable and not cross_check(self.config)

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
    def batch_per_device(self) -> int | None:
        return self.placed.global_batch_size // self.placed.devices if self.placed and not self.is_script else None

    @property
    def steps_per_epoch(self) -> int | None:
        return self._unless({"dataset", "global_batch_size"}, lambda: make_plan(self.config).steps_per_epoch or None)

    @property
    def left_out(self) -> int | None:
        return self._unless({"dataset", "global_batch_size"}, lambda: make_plan(self.config).left_out)

    @property
    def total_steps(self) -> int | None:
        keys = {"dataset", "global_batch_size", "epochs", "max_steps"}
        return self._unless(keys, lambda: make_plan(self.config).total_steps or None)

    @property
    def memory(self) -> MemoryEstimate | None:
        placed = self.placed
        if placed is None or not can_estimate(placed):
            return None
        return self._unless({"dataset", "model"}, lambda: estimate_memory(placed))

    def _unless(self, keys: Set[str], figure: Callable[[], Figure]) -> Figure | None:
        """Returns a figure, or None when one of the keys it depends on is wrong or the data set's file is missing."""
        if self.problems.keys() & keys:
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


def examine(texts: Mapping[str, str], base: RunConfig, machine: Machine | None) -> Draft:
    """Checks the texts by key, each and together, and the machine if known; `base` replaces what cannot be parsed.

    `texts` may have those of `OF_THE_RUN` too.
    """
    values, problems = _read({key: text for key, text in texts.items() if key not in OF_THE_RUN})
    about, not_allowed = _read_about(texts)
    # A key that does not apply must neither block the run nor appear in the command.
    chosen = {**to_mapping(base), **values}
    idle = inapplicable_keys(chosen)
    values = {key: value for key, value in values.items() if key not in idle}
    problems = [problem for problem in problems if problem.key not in idle]
    unreadable = frozenset(problem.key for problem in problems)
    config = msgspec.structs.replace(base, **values)
    here = placement_problems(config, machine) if machine is not None else []
    for found in (check_data(config), here, cross_check(config)):
        # What depends on a wrong key is wrong too: report the cause alone.
        wrong = {problem.key for problem in problems}
        problems += [problem for problem in found if not wrong & problem.keys]
    placed = place(config, machine) if machine is not None and not problems else None
    if not _device_ids_apply(config, machine) and "device_ids" not in unreadable:
        idle.add("device_ids")
    return Draft(
        base=base,
        config=config,
        placed=placed,
        unreadable=unreadable,
        problems={**in_words(problems), **not_allowed},
        about=about,
        changed=unreadable | changed_keys(config, base).keys(),
        hidden=frozenset(idle),
    )


def in_words(problems: Iterable[Problem]) -> dict[str, str]:
    """Returns problems by the form's keys; "" for a key that the form does not have."""
    words: dict[str, str] = {}
    for problem in problems:
        known = problem.key in OPTIONS
        text = problem.message if known else str(problem)
        text = text[:1].upper() + text[1:] if not known else text
        key = problem.key if known else ""
        words[key] = f"{words[key]} {text}" if key in words else text
    return words


def command_line(draft: Draft, preset: str | None, runs_dir: str | None, *, like: bool = False) -> str | None:
    """Returns the equivalent `tuiapp run` command, quoted for a shell; None while a field prevents it.

    A `preset` of None is the defaults; with `like` it is a run's name. A `runs_dir` of None is the default directory.
    """
    if draft.not_in_words:
        return None
    words = ["tuiapp", "run", *(["--like"] if like else []), *([preset] if preset else [])]
    changes, passed = changed_keys(draft.config, draft.base), list[str]()
    if draft.is_script and not preset:
        script = draft.config.script
        by_name = script.startswith(MODULE) or script.endswith(".py")
        if by_name:
            words += ["-m", script.removeprefix(MODULE)] if script.startswith(MODULE) else [script]
        for key in ("backend", "script") if by_name else ():
            changes.pop(key, None)
    if draft.is_script and "arguments" in changes and "arguments" not in draft.problems:
        passed = ["--", *split_words(str(changes.pop("arguments")))]
    for key, value in changes.items():
        words += ["--set", f"{key}={format_value(value)}"]
    words += ["--name", draft.about.name] if draft.about.name else []
    for tag in draft.about.tags:
        words += ["--tag", tag]
    if runs_dir is not None:
        words += ["--runs-dir", runs_dir]
    return shlex.join([*words, *passed])


def device_words(config: RunConfig, machine: Machine) -> str:
    """Describes the devices of a placed configuration."""
    one = config.devices == 1
    chosen = [gpu.number for gpu in machine.gpus if gpu.uuid in config.device_ids]
    numbers = f": {', '.join(chosen)}" if 0 < len(chosen) < len(machine.gpus) else ""
    if not BACKENDS[config.backend].builtin:
        count = rank_processes(config)
        processes = "1 process" if count == 1 else f"{count} processes"
        return f"{processes} on {plural(config.devices, 'GPU') if config.platform == 'cuda' else 'the CPU'}{numbers}"
    if config.platform == "cuda":
        by = BACKENDS[config.backend].collectives
        return f"1 GPU{numbers}" if one else f"{config.devices} GPUs{f' ({by})' if by else ''}{numbers}"
    if BACKENDS[config.backend].process_per_device:
        return "1 CPU rank" if one else f"{config.devices} CPU ranks (gloo)"
    return "1 CPU device" if one else f"{config.devices} virtual CPU devices"


def _read(texts: Mapping[str, str]) -> tuple[dict[str, Value], list[Problem]]:
    values: dict[str, Value] = {}
    problems: list[Problem] = []
    for key, text in texts.items():
        try:
            values[key] = _parse(OPTIONS[key], text)
        except ConfigError as error:
            problems += error.problems
    return values, problems


def _read_about(texts: Mapping[str, str]) -> tuple[About, dict[str, str]]:
    """Returns what is allowed of it, and the problems of the rest by field."""
    given = {NAME.key: texts.get(NAME.key, "").strip(), TAGS.key: split_tags(texts.get(TAGS.key, ""))}
    about, problems = About(), dict[str, str]()
    for key, value in given.items():
        try:
            about = msgspec.structs.replace(about, **{key: value})
        except AboutError as error:
            problems[key] = str(error)
    return about, problems


def _parse(option: Option, text: str) -> Value:
    if not text.strip() and option.kind in ("int", "float"):
        raise ConfigError([Problem(option.key, f"is empty; it must be {option.allowed()}.")])
    return option.parse(text)


def _device_ids_apply(config: RunConfig, machine: Machine | None) -> bool:
    return bool(config.device_ids) or (machine is not None and bool(machine.gpus) and config.platform != "cpu")


def machine_words(machine: Machine | None) -> str:
    """Describes this machine on one line."""
    if machine is None:
        return "detecting devices…"
    words = [plural(machine.cpu_cores, "CPU core"), f"{format_bytes(machine.memory_total_bytes)} of memory"]
    names = Counter(sanitize(gpu.name) for gpu in machine.gpus)
    words += [f"{count} × {name}" for name, count in names.items()]
    if machine.gpu_limit:
        words.append(sanitize(machine.gpu_limit))
    if machine.driver:
        words.append(f"driver {sanitize(machine.driver)}")
    if not machine.gpus:
        words.append(f"no GPU: {sanitize(machine.gpu_problem)}" if machine.gpu_problem else "no GPU")
    return join_words(words)
