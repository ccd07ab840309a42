"""What a sampler gets when it is started: its only argument, as JSON."""

from __future__ import annotations

import json

import msgspec


class SamplerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run_dir: str
    """Its disk is sampled."""
    ranks: dict[int, int] = {}
    gpus: str = ""
    """As in CUDA_VISIBLE_DEVICES: indices or UUIDs; "all"; "" for none."""
    interval_s: float = 1.0
    energy: dict[str, float] = {}
    """GPU → joules that earlier samplers have counted."""
    handover_fd: int | None = None
    """An inherited `Handover`."""
    left_alone: dict[str, float] = {}
    """Libraries not to be called, each until a time on the monotonic clock."""


def encode_config(config: SamplerConfig) -> str:
    """Encodes it as a command-line argument."""
    # Unlike msgspec's, this JSON holds a directory whose name is no UTF-8.
    return json.dumps(msgspec.to_builtins(config, str_keys=True))


def decode_config(argument: str) -> SamplerConfig:
    """Decodes the argument."""
    return msgspec.convert(json.loads(argument), SamplerConfig, str_keys=True)
