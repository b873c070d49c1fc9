"""Settings shared by all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite(
    "checkpoint_checks",
    "gpu_checks",
    "kernel_checks",
    "plot_checks",
    "reader_checks",
    "report_models",
    "saved_model_checks",
    "strategies",
)

# The same examples on every run and every machine: a failure in CI is a failure here. The thorough
# versions of the property tests (marked slow) draw new examples each time.
settings.register_profile(
    "klnmf",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("klnmf")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--opaque",
        action="store_true",
        help='let backend="auto" be one whose factors only its verbs can read, as on a GPU',
    )
    parser.addoption("--cuda", action="store_true", help="run the tests that need a GPU, alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a GPU run with ``--cuda``, and then nothing else does; none is skipped."""
    wanted = config.getoption("--cuda")
    left_out = [item for item in items if (item.get_closest_marker("cuda") is not None) != wanted]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def opaque_by_default(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--opaque`` the back-end of tests/opaque_backend.py is the first of the table."""
    if request.config.getoption("--opaque"):
        from klnmf import backends

        line = {"opaque": ("opaque_backend", "OpaqueBackend")}
        monkeypatch.setattr(backends, "BACKENDS", line | backends.BACKENDS)


# What a shell starts in the background ignores Ctrl-C, and tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
