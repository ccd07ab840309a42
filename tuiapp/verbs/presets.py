"""`tuiapp presets`: presets on the command line."""

from __future__ import annotations

import sys
from argparse import Namespace

from tuiapp.library.presets import (
    delete_preset,
    list_presets,
    load_config,
    presets_dir,
    rename_preset,
    save_preset,
)
from tuiapp.trainers.config.run_config import to_toml, to_toml_values
from tuiapp.trainers.config.secrets import mask_values
from tuiapp.trainers.state.text import sanitize
from tuiapp.verbs.output import print_json
from tuiapp.verbs.sources import read_source


def list_all(options: Namespace) -> int:
    """Prints one line per preset, with its error if it has one."""
    presets = list_presets()
    if options.json:
        facts = [
            {
                "name": preset.name,
                "builtin": preset.builtin,
                "path": str(preset.path),
                "description": preset.description,
                "error": str(preset.error) if preset.error else None,
                "config": mask_values(to_toml_values(preset.config)) if preset.config else None,
            }
            for preset in presets
        ]
        print_json(facts)
        return 0
    width = max(len(preset.name) for preset in presets)
    for preset in presets:
        kind = "built in" if preset.builtin else "! broken" if preset.error else "yours"
        print(f"{sanitize(preset.name):{width}}  {kind:8}  {sanitize(preset.summary)}")
    return 0


def show(options: Namespace) -> int:
    """Prints a preset as the file that `tuiapp run FILE` takes, with all keys."""
    sys.stdout.write(to_toml(load_config(options.name)))
    return 0


def save(options: Namespace) -> int:
    """Saves a preset."""
    config = read_source(options.source, options.settings, arguments=options.arguments)
    path = save_preset(options.name, config, options.description, overwrite=options.force)
    print(f"saved {sanitize(str(path))}", file=sys.stderr)
    return 0


def rename(options: Namespace) -> int:
    """Renames a preset."""
    path = rename_preset(options.name, options.new_name)
    print(f"renamed to {sanitize(str(path))}", file=sys.stderr)
    return 0


def delete(options: Namespace) -> int:
    """Deletes a preset."""
    delete_preset(options.name)
    print(f"deleted {sanitize(options.name)}", file=sys.stderr)
    return 0


def path(_: Namespace) -> int:
    """Prints the directory of the user's presets."""
    print(sanitize(str(presets_dir())))
    return 0
