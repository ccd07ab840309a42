"""Key names as Textual writes them."""

from __future__ import annotations

from textual._keyboard_protocol import FUNCTIONAL_KEYS
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from tuiapp.trainers.config.options import shown, suggest

MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
"""In Textual's order."""

ALLOWED = 'keys, comma-separated, as "f9", "ctrl+k", "alt+left", "question_mark" or "?"'


def key_problem(key: str) -> str:
    """Returns why no key has this name, or ""."""
    *modifiers, bare = key.split("+") if len(key) > 1 else [key]
    mended = "+".join([*(modifier for modifier in MODIFIERS if modifier in modifiers), bare])
    if unknown := [modifier for modifier in modifiers if modifier not in MODIFIERS]:
        hint = suggest(unknown[0], MODIFIERS) or f" Allowed before a +: {', '.join(MODIFIERS)}."
    elif not _is_key(bare):
        hint = suggest(bare, _named())
    elif mended != key:
        hint = f" Did you mean {mended!r}?"
    elif modifiers == ["shift"] and len(bare) == 1:
        # A terminal sends the letter itself.
        hint = f" Did you mean {bare.upper()!r}?"
    else:
        return ""
    return f"{shown(key)} is not allowed; it must be {ALLOWED}.{hint}"


def _is_key(bare: str) -> bool:
    character = bare if len(bare) == 1 else key_to_character(bare) or "\n"
    return bare in _named() or character.isprintable()


def _named() -> set[str]:
    """Returns keys that type no character, and characters not named as in Unicode."""
    pressed = {key.value.rpartition("+")[2] for key in Keys if "<" not in key.value}
    return pressed.union(FUNCTIONAL_KEYS.values(), KEY_NAME_REPLACEMENTS.values())
