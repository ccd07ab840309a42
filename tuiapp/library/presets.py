"""Presets: named configurations, one TOML file each, the built-in ones read-only.

The user's are in `tuiapp/presets` in the user's configuration directory. An unusable file is still listed, with its
error.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import make_private, read_limited, user_config, write_atomically
from tuiapp.trainers.config.options import ConfigError, Problem, shown, suggest
from tuiapp.trainers.config.relevance import check_file, drop_inapplicable
from tuiapp.trainers.config.run_config import (
    MAX_FILE_BYTES,
    OPTIONS,
    SCHEMA,
    RunConfig,
    changed_keys,
    parse_toml,
    to_toml_values,
)
from tuiapp.trainers.config.script import subject, with_absolute_paths
from tuiapp.trainers.state.text import without_directories

NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,64}")
NAME_RULE = "1 to 64 letters, digits, '.', '_' or '-', not starting with '.'"
QUICKSTART = "quickstart"  # for new users
AT_HAND = (QUICKSTART, "mlp", "single-device", "gpt")  # built-in presets that need no download; listed first
BUILTIN_DIR = Path(__file__).with_name("builtin_presets")


class PresetError(Exception):
    """A preset cannot be found, written or deleted; the message gives the reason and what to do."""


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    path: Path
    builtin: bool
    description: str = ""
    config: RunConfig | None = None
    error: ConfigError | None = None  # set exactly when `config` is None
    is_run: bool = False  # a run's configuration, named like the run, never listed

    @property
    def summary(self) -> str:
        if self.error is not None:
            return str(self.error.problems[0])
        assert self.config is not None
        chosen = self.config
        model, dataset = without_directories(subject(chosen)), without_directories(chosen.dataset)
        if not BACKENDS[chosen.backend].builtin:
            return self.description or f"{model} · {chosen.backend}"
        return self.description or f"{model} · {dataset} · {chosen.backend} · {chosen.optimizer}"


MY_SCRIPT = Preset(
    "my-script",
    BUILTIN_DIR,
    builtin=True,
    description="your own program, as it is; on the command line: tuiapp run FILE.py",
    config=RunConfig(backend="script"),
)
"""Stands in the form alone: without the script's name it is no configuration that could run."""


def presets_dir() -> Path:
    """Returns the directory of the user's presets."""
    return user_config() / "presets"


def list_presets() -> list[Preset]:
    """Returns the user's presets, then the built-in ones, those for beginners first; each sorted by name."""
    order = {name: index for index, name in enumerate(AT_HAND)}
    files = sorted(BUILTIN_DIR.glob("*.toml"), key=lambda path: (order.get(path.stem, len(order)), path.stem))
    builtin = [_load(path, builtin=True) for path in files]
    try:
        files = sorted(path for path in presets_dir().glob("*.toml") if not path.name.startswith("."))
    except OSError:
        files = []
    taken = {preset.name for preset in builtin}
    return [_shadowed(path) if path.stem in taken else _load(path, builtin=False) for path in files] + builtin


def find_preset(name: str) -> Preset:
    """Returns the preset of that name, which may be one with an error; raises `PresetError` if there is none."""
    presets = {preset.name: preset for preset in list_presets()}
    if name in presets:
        return presets[name]
    hint = suggest(name, presets) or f" Available: {', '.join(presets)}."
    raise PresetError(f"There is no preset {shown(name)}.{hint}")


def load_config(name: str) -> RunConfig:
    """Returns the configuration of a preset; raises `PresetError` if there is none, `ConfigError` if it is invalid."""
    preset = find_preset(name)
    if preset.config is None:
        assert preset.error is not None
        raise preset.error
    return preset.config


def of_run(config: RunConfig) -> RunConfig:
    """Returns the configuration of a run as a preset has it: how many GPUs, not which were free at the time."""
    return replace(config, devices=config.devices or len(config.device_ids), device_ids=())


def save_preset(name: str, config: RunConfig, description: str = "", *, overwrite: bool = False) -> Path:
    """Writes a user's preset: what differs from the defaults, so that new defaults reach it.

    A `description` of "" keeps that of an existing file; `overwrite` keeps its comments. Raises `PresetError` if the
    name is invalid or a built-in one, the preset exists, or the file cannot be written or would be too long to read.
    """
    path = _user_path(name)
    if os.path.lexists(path) and not overwrite:
        raise PresetError(f"A preset {name!r} already exists; choose another name, or overwrite it (--force).")
    # Command-line text that is not UTF-8 cannot be written as TOML.
    data = _render(config, description, path if overwrite else None).encode(errors="replace")
    if len(data) > MAX_FILE_BYTES:
        raise PresetError(f"Cannot write {path}: it would be longer than {MAX_FILE_BYTES // 1024} KiB.")
    try:
        make_private(path.parent)
        write_atomically(path, data)
    except OSError as error:
        raise PresetError(f"Cannot write {path}: {error.strerror}.") from error
    return path


def delete_preset(name: str) -> None:
    """Deletes a user's preset; raises `PresetError` if there is none, it is built in, or it cannot be removed."""
    path = _own_file(name)
    try:
        path.unlink()
    except OSError as error:
        raise PresetError(f"Cannot delete {path}: {error.strerror}.") from error


def rename_preset(name: str, new_name: str) -> Path:
    """Renames a user's preset; raises `PresetError` if there is none, or the new name is invalid or taken."""
    old, new = _own_file(name), _user_path(new_name)
    try:
        # A hard link fails where a rename would overwrite.
        os.link(old, new, follow_symlinks=False)
        old.unlink()
    except FileExistsError:
        raise PresetError(f"A preset {new_name!r} already exists; choose another name.") from None
    except OSError as error:
        raise PresetError(f"Cannot rename {old}: {error.strerror}.") from error
    return new


def check_name(name: str) -> None:
    """Raises `PresetError` if a name breaks `NAME_RULE`, or a built-in preset has it."""
    if not NAME.fullmatch(name):
        raise PresetError(f"{shown(name)} is not a valid preset name: use {NAME_RULE}.")
    if os.path.exists(BUILTIN_DIR / f"{name}.toml"):
        raise PresetError(f"{name!r} is a built-in preset and read-only; save yours under another name.")


def _user_path(name: str) -> Path:
    check_name(name)
    return presets_dir() / f"{name}.toml"


def _own_file(name: str) -> Path:
    """Returns the file of a user's preset, even if it is listed under another name than its stem."""
    path = _user_path(name)
    return path if os.path.lexists(path) else find_preset(name).path


def _shadowed(path: Path) -> Preset:
    """Returns an entry for a file that no name selects: its full name shows the user why it is not used."""
    problem = Problem("", "it has the name of a built-in preset; rename it")
    return Preset(path.name, path, builtin=False, error=ConfigError([problem], str(path)))


def _load(path: Path, *, builtin: bool) -> Preset:
    try:
        if not NAME.fullmatch(path.stem):
            raise ConfigError([Problem("", f"its name must be {NAME_RULE}")], str(path))
        text = read_limited(path, MAX_FILE_BYTES)
        config, extra = parse_toml(text, str(path), also=frozenset({"description"}))
        if problems := check_file(config):
            raise ConfigError(problems, str(path))
        description = extra.get("description", "")
        if not isinstance(description, str):
            raise ConfigError([Problem("description", f"{shown(description)} must be a string.")], str(path))
    except ConfigError as error:
        return Preset(path.stem, path, builtin, error=error)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        if os.path.islink(path):
            why = "is a symbolic link; replace it with the file itself"
        return Preset(path.stem, path, builtin, error=ConfigError([Problem("", why)], str(path)))
    return Preset(path.stem, path, builtin, " ".join(description.split()), config)


def _render(config: RunConfig, description: str, existing: Path | None) -> str:
    # Imported for writing only, to keep the dashboard's first picture fast.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    document = tomlkit.document()
    if existing is not None:
        # A file that cannot be parsed has no comments to keep.
        with contextlib.suppress(OSError, ValueError, RecursionError, TOMLKitError):
            document = tomlkit.parse(read_limited(existing, MAX_FILE_BYTES))
    for key in list(document):
        is_ours = key in OPTIONS or key == "schema" or (key == "description" and isinstance(document[key], str))
        if not is_ours:
            del document[key]
    document["schema"] = SCHEMA
    if description:
        document["description"] = description
    # It may be found from another directory, or hold keys of another kind of backend.
    kept = with_absolute_paths(drop_inapplicable(config))
    changed = changed_keys(kept, RunConfig())
    values = {key: value for key, value in to_toml_values(kept).items() if key in changed}
    for key in OPTIONS.keys() & document.keys() - values.keys():
        del document[key]
    document.update(values)
    return tomlkit.dumps(document)
