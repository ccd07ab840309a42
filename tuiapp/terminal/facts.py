"""Terminal capabilities, from the environment."""

from __future__ import annotations

from collections.abc import Mapping


def wants_ascii(setting: str, environment: Mapping[str, str]) -> bool:
    """Whether to draw with ASCII alone.

    `setting` is on, off, or auto: ASCII on the kernel's own console, which has few characters, and in a locale that is
    C or has an encoding other than UTF-8.
    """
    if setting != "auto":
        return setting == "off"
    if environment.get("TERM", "") in ("linux", "dumb", "vt100", "vt220"):
        return True
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if locale == "C.UTF-8" and not environment.get("LC_ALL"):
        # Python itself sets LC_CTYPE to this where the locale is C (PEP 538).
        locale = environment.get("LANG") or locale
    if not locale:
        return False
    encoding = locale.partition(".")[2].partition("@")[0].lower().replace("-", "")
    return locale in ("C", "POSIX") or (bool(encoding) and encoding != "utf8")
