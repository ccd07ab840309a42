"""The names of JAX that `tuiapp.trainers.frameworks.jax.devices` needs for several nodes and JAX may drop."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import jax
import pytest

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("jax._src.distributed", "global_state.client", ()),
        ("jax._src.xla_bridge", "make_cpu_client", ("collectives",)),
        ("jaxlib._jax", "make_gloo_tcp_collectives", ("distributed_client", "interface")),
        ("jax.extend.backend", "register_backend_factory", ("priority", "fail_quietly")),
        (
            "jax.distributed",
            "initialize",
            ("cluster_detection_method", "coordinator_bind_address", "heartbeat_timeout_seconds"),
        ),
    ],
)
def test_it_is_there(module: str, name: str, arguments: tuple[str, ...]) -> None:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"jax {jax.__version__} has no {module}.{name}, which `connect` needs"
        found = getattr(found, part)
    # What is compiled tells its arguments in its docstring alone.
    takes = (
        (found.__doc__ or "") if "nanobind" in str(type(found)) else str(inspect.signature(found)) if arguments else ""
    )
    for argument in arguments:
        assert f"{argument}:" in takes, f"jax {jax.__version__}: {module}.{name} takes no {argument!r}, but {takes}"


def test_the_preemption_service_can_be_disabled() -> None:
    assert hasattr(jax.config, "jax_enable_preemption_service"), f"jax {jax.__version__} has no such setting"
