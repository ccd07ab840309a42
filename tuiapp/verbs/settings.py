"""`tuiapp settings`: the user's settings, and what can be set."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from tuiapp.trainers.config.options import Problem
from tuiapp.trainers.config.settings import Settings, host_of, read_settings, settings_path
from tuiapp.trainers.state.text import sanitize
from tuiapp.verbs.output import print_json, tell

USAGE_ERROR = 2


def read_all() -> tuple[Settings, list[Problem]]:
    """Returns the settings and all problems in the file, including themes and keys, which only the dashboard knows."""
    settings, problems = read_settings()
    if settings.theme or settings.keys:
        # It imports Textual, and every screen for the keys.
        from tuiapp.screens.preferences import check_keys, check_theme

        if settings.keys:
            import tuiapp.app  # noqa: F401 (its keys count as well)
        problems = [*problems, *check_theme(settings.theme), *check_keys(settings.keys)]
    return settings, problems


def show(options: Namespace) -> int:
    """Prints the settings in force, in the file's format; problems go to stderr."""
    settings, problems = read_all()
    facts = msgspec.to_builtins(settings)
    if settings.webhook:
        # It may be a secret, and this a shared screen.
        facts["webhook"] = f"{host_of(settings.webhook)}/…"
    if options.json:
        print_json(facts)
    else:
        import tomlkit

        print(f"# {sanitize(str(settings_path()))}")
        print(tomlkit.dumps(facts), end="")
    for problem in problems:
        tell(f"{settings_path()}: {problem}")
    return USAGE_ERROR if problems else 0


def path(_: Namespace) -> int:
    """Prints the file's path, whether it exists or not."""
    print(sanitize(str(settings_path())))
    return 0


def list_keys(options: Namespace) -> int:
    """Prints the key bindings, under the names that the file uses for them."""
    # It imports every screen.
    import tuiapp.app  # noqa: F401 (its keys count as well)
    from tuiapp.screens.preferences import bindings

    keys = list(bindings())
    if options.json:
        print_json([{"name": key.name, "keys": key.keys, "does": key.does} for key in keys])
        return 0
    width = max(len(key.name) for key in keys)
    for key in keys:
        print(f"{key.name:{width}}  {key.keys:28}  {key.does}")
    return 0
