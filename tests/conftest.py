"""Settings shared by all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite(
    "checkpoint_checks",
    "kernel_checks",
    "plot_checks",
    "reader_checks",
    "report_models",
    "saved_model_checks",
    "strategies",
)
pytest_plugins = ["local_server"]

# The same examples on every run and every machine: a failure in CI is a failure here. The thorough
# versions of the property tests (marked slow) draw new examples each time.
settings.register_profile(
    "klnmf",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("klnmf")

# What a shell starts in the background ignores Ctrl-C, and tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
