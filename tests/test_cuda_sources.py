"""The CUDA sources compile, without a GPU, for every architecture and layout of factors."""

from __future__ import annotations

import pytest

import nvrtc
from klnmf import KLNMF
from klnmf.backends import backend_class
from klnmf.backends.cuda.modules import MOST_COMPONENTS, RankClass, source

COMPILER = nvrtc.library()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="nvidia-cuda-nvrtc-cu12 is missing")


@needs_compiler
@pytest.mark.parametrize(("architecture", "rank"), [("sm_70", 20), ("sm_90", 100)])
def test_sources_compile(architecture: str, rank: int) -> None:
    options = RankClass.of(rank, 1000).options
    assert "error" not in nvrtc.compiled(COMPILER, source(), (*options, f"-arch={architecture}"))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("rank", [*range(8, 57, 8), 57, MOST_COMPONENTS])
@pytest.mark.parametrize("architecture", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_sources_compile_for_every_rank(architecture: str, rank: int) -> None:
    for rows in (1000, 2**32 // rank):
        options = RankClass.of(rank, rows).options
        nvrtc.compiled(COMPILER, source(), (*options, f"-arch={architecture}"))


@needs_compiler
def test_the_hot_kernels_keep_their_numbers_in_registers() -> None:
    """A few bytes of spilled registers cost more than any other trick gains."""
    options = (*RankClass.of(50, 1000).options, "-arch=sm_90", "--ptxas-options=-v")
    assert nvrtc.spilled_bytes(nvrtc.compiled(COMPILER, source(), options), "second_order") <= 16


def test_layouts() -> None:
    for rank in range(1, MOST_COMPONENTS + 1):
        layout = RankClass.of(rank, 1000)
        assert rank <= layout.stride < rank + 56
        assert layout.stride % 8 == 0
    assert not RankClass.of(50, 76_000_000).wide_offsets
    assert RankClass.of(50, 77_000_000).wide_offsets


def test_without_a_gpu_one_line_says_so() -> None:
    reason = backend_class("cuda").available()
    if reason is None:
        pytest.skip("there is a GPU")
    with pytest.raises(ImportError, match="backend='cuda' is not available here: "):
        KLNMF(2, backend="cuda").fit([[1, 2], [3, 4]])
