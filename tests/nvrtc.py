"""NVIDIA's run-time compiler, which needs no GPU: from the package nvidia-cuda-nvrtc-cu12."""

from __future__ import annotations

import ctypes
import re
from importlib.util import find_spec
from pathlib import Path


def library() -> ctypes.CDLL | None:
    """The compiler, if it is installed."""
    spec = find_spec("nvidia.cuda_nvrtc") if find_spec("nvidia") else None
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    found = [path for folder in folders for path in Path(folder).glob("lib/libnvrtc.so.*")]
    return ctypes.CDLL(str(found[0])) if found else None


def compiled(nvrtc: ctypes.CDLL, source: str, options: tuple[str, ...]) -> str:
    """Compile to a binary; returns what the compiler says, and raises if that is an error."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"klnmf.cu", 0, None, None)
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), arguments)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    assert not failed, log.value.decode()
    return log.value.decode()


def spilled_bytes(log: str, kernel: str) -> int:
    """Bytes of registers that a kernel stores elsewhere, as the log of ``-v`` says."""
    found = re.search(rf"entry function '{kernel}'.*?(\d+) bytes spill stores", log, re.DOTALL)
    assert found is not None, log
    return int(found.group(1))
