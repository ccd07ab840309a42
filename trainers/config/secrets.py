"""Masks what must not leave the machine in what is made to be shared: reports, exports, what is printed.

The run directory itself keeps the values, which a resume needs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

MASK = "***"

_SECRET = re.compile(
    r"(^|[_.-])(token|secret|password|passwd|passphrase|credentials?|auth|api_?key"
    r"|(access|account|auth|client|license|private|secret|ssh)_key)$"
)
_SPECIAL_TOKEN = re.compile(r"(^|[_.-])(bos|cls|eos|mask|pad|sep|unk)_token$")
"""What tokenizers call some of their words."""
_URL_PASSWORD = re.compile(r"(://[^:/@\s]+:)[^@\s]+@")


def is_secret(name: str) -> bool:
    """Whether a value of that name, as of an option, a variable or a key, is one to keep to oneself."""
    plain = name.lstrip("-").lower().replace("-", "_")
    return bool(_SECRET.search(plain)) and not _SPECIAL_TOKEN.search(plain)


def mask_words(words: Iterable[str]) -> Iterator[str]:
    """Yields the words of a command line with `MASK` for `--api-key X`, `TOKEN=X` and passwords in URLs."""
    follows = False
    for word in words:
        name, equals, value = word.partition("=")
        if follows and not word.startswith("-"):
            yield MASK
        elif name == "environment" and equals:
            yield f"environment={mask_environment(value)}"
        elif name == "arguments" and equals:
            yield f"arguments={mask_arguments(value)}"
        elif equals and is_secret(name):
            yield f"{name}={MASK}"
        else:
            yield _URL_PASSWORD.sub(rf"\1{MASK}@", word)
        follows = word.startswith("-") and not equals and is_secret(word)


def mask_arguments(text: str) -> str:
    """Masks a line as of a shell; what is no such line is masked whole."""
    try:
        words = shlex.split(text)
    except ValueError:
        return MASK
    masked = [*mask_words(words)]
    # What is masked need not be quoted for a shell.
    return text if masked == words else " ".join(one if MASK in one else shlex.quote(one) for one in masked)


def mask_environment(text: str) -> str:
    """Masks the values of `A=1 B='x y'`, all of them."""
    try:
        return " ".join(f"{word.partition('=')[0]}={MASK}" for word in shlex.split(text))
    except ValueError:
        return MASK


def mask_values(values: Mapping[str, object]) -> dict[str, object]:
    """Masks a configuration's values, those of a script's own keys among them."""
    return {key: _mask_value(key, value) for key, value in values.items()}


def _mask_value(key: str, value: object) -> object:
    if isinstance(value, Mapping):
        return mask_values(value)
    if key == "environment" and isinstance(value, str):
        return mask_environment(value)
    if key == "arguments" and isinstance(value, str):
        return mask_arguments(value)
    if isinstance(value, str):
        return MASK if value and is_secret(key) else _URL_PASSWORD.sub(rf"\1{MASK}@", value)
    return value
