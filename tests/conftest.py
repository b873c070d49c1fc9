"""Settings shared by all tests."""

from __future__ import annotations

import os
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

# Tests run in several processes at once; threads of NumPy's BLAS that wait for others would spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The same examples on every run and every machine: a failure in CI is a failure here. The thorough
# versions of the property tests (marked slow) draw new examples each time.
settings.register_profile(
    "klnmf",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("klnmf")


# Tests that run with ``--cuda`` too. There "auto" is "cuda" for data in float32, and the CPU for
# other data and for what a GPU does not do.
ALSO_ON_A_GPU = (
    "test_promises",
    "test_promises_descent",
    "test_constraints_promises",
    "test_estimator",
)
# Other processes are not told that "auto" is a GPU.
CPU_ONLY = ("test_parallel_fits_in_processes_equal_serial_ones",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--opaque",
        action="store_true",
        help='let backend="auto" be one whose factors only its verbs can read, as on a GPU',
    )
    parser.addoption("--cuda", action="store_true", help="run the tests that need a GPU, alone")


def pytest_configure(config: pytest.Config) -> None:
    """With ``--cuda`` the first back-end is a GPU, or there are no tests."""
    if config.getoption("--cuda"):
        from klnmf import backends
        from klnmf.backends.cuda.backend import CudaBackend

        reason = CudaBackend.available()
        if reason is not None:
            raise pytest.UsageError(f"--cuda: {reason}")
        line = {"cuda or cpu": ("cuda_or_cpu", "CudaOrCpu")}
        backends.BACKENDS = line | backends.BACKENDS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--cuda``, tests that need a GPU run, and those of promises; none is skipped."""
    is_cuda = config.getoption("--cuda")

    def is_wanted(item: pytest.Item) -> bool:
        needs_gpu = item.get_closest_marker("cuda") is not None
        if not is_cuda or needs_gpu:
            return needs_gpu == is_cuda
        return item.path.stem in ALSO_ON_A_GPU and getattr(item, "originalname", "") not in CPU_ONLY

    left_out = [item for item in items if not is_wanted(item)]
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
