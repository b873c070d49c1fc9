"""Files are written and read on a system like Windows: no POSIX calls, and open files stay put."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What Windows has not is taken away from Python, after the other libraries were imported. There, a
# file that is open can neither be renamed nor removed, and a folder cannot be opened.
LIKE_WINDOWS = """
import mmap, os, shutil, sys
import joblib, numpy as np, scipy.sparse as sp, sklearn.decomposition

for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("O_DIRECTORY", "O_NOFOLLOW", "fork", "getuid", "mkfifo", "pread", "preadv", "pwrite",
             "register_at_fork", "sched_getaffinity", "sysconf"):
    delattr(os, name)
for name in [name for name in dir(mmap) if name.startswith("MADV_")]:
    delattr(mmap, name)


def is_open(path):
    path = os.path.realpath(path)
    for fd in os.listdir("/proc/self/fd"):
        try:
            found = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if found == path or found.startswith(path + "/"):
            return True
    with open("/proc/self/maps") as maps:
        return any(line.rstrip().endswith(path) or path + "/" in line for line in maps)


def guarded(call):
    def guard(path, *args, **kwargs):
        for place in (path, *args):
            if not isinstance(place, int) and is_open(place):
                raise PermissionError(13, "The process cannot access the file", str(place))
        return call(path, *args, **kwargs)
    return guard


def open_no_folder(path, *args, _open=os.open, **kwargs):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return _open(path, *args, **kwargs)


for name in ("remove", "rename", "replace", "unlink"):
    setattr(os, name, guarded(getattr(os, name)))
os.open = open_no_folder
shutil._use_fd_functions = False  # rmtree opens no folders
folder = sys.argv[1]
X = sp.csr_array(np.random.default_rng(0).poisson(0.5, (60, 40)).astype(float))
"""

FILES = """
import klnmf
run = klnmf.RunOptions(checkpoint=f"{folder}/fit.checkpoint")
model = klnmf.KLNMF(3, random_state=0, max_iter=20, tol=0, run=run).fit(X)
for _ in range(2):  # the second time over the file that is there
    model.save(f"{folder}/model.klnmf")
loaded = klnmf.load_model(f"{folder}/model.klnmf")
np.testing.assert_array_equal(loaded.model.components_, model.components_)
print(sorted(os.listdir(folder)))

from klnmf.readers import prepare
X[0, 0] = 70_000  # wider numbers after narrow ones
path = f"{folder}/counts"
prepare(X, path, memory="1M")
matrix = prepare(X, path, memory="1M", overwrite=True)
on_disk = klnmf.KLNMF(3, random_state=0, max_iter=5, tol=0).fit(matrix)
in_memory = klnmf.KLNMF(3, random_state=0, max_iter=5, tol=0).fit(X.astype(matrix.dtype))
np.testing.assert_array_equal(on_disk.components_, in_memory.components_)
print(sorted(os.listdir(folder)))
"""

LEFTOVERS = """
from klnmf.support.whole_files import locked_folder, writing
from pathlib import Path
left = Path(folder, ".01234567.011ba68c.part.notes")
left.write_text("of a writer that was killed")
os.utime(left, (0, 0))
with writing(f"{folder}/notes") as stream, writing(f"{folder}/notes") as second:
    print(left.exists(), len(os.listdir(folder)))
with locked_folder(Path(folder)):
    try:
        with locked_folder(Path(folder)):
            raise AssertionError("held twice")
    except BlockingIOError as error:
        print(error)
print(sorted(os.listdir(folder)), os.path.exists(folder + ".lock"))
"""


def outcome(code: str, folder: Path) -> str:
    command = [sys.executable, "-W", "ignore", "-c", LIKE_WINDOWS + code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the simulation looks into Linux's /proc"
)


def test_models_are_saved_and_matrices_prepared(tmp_path: Path) -> None:
    assert outcome(FILES, tmp_path).splitlines() == [
        "['fit.checkpoint', 'model.klnmf']",
        "['counts', 'fit.checkpoint', 'model.klnmf']",
    ]


def test_writers_know_each_other(tmp_path: Path) -> None:
    said = outcome(LEFTOVERS, tmp_path).splitlines()
    assert said[0] == "False 2"
    assert said[1] == f"{tmp_path} is held by another process."
    assert said[2] == "['notes'] False"
