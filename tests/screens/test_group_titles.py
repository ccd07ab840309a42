"""Above the keys of a widget the help names the widget, not its class."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from textual.widget import Widget

from tuiapp import widgets

NAMES = [module.name for module in pkgutil.iter_modules(widgets.__path__)]


@pytest.mark.parametrize("name", NAMES)
def test_a_widget_with_keys_has_a_name(name: str) -> None:
    module = importlib.import_module(f"tuiapp.widgets.{name}")
    for kind in vars(module).values():
        ours = isinstance(kind, type) and issubclass(kind, Widget) and kind.__module__ == module.__name__
        if ours and kind.__dict__.get("BINDINGS"):
            assert getattr(kind, "BINDING_GROUP_TITLE", None), kind
