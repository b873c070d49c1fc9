"""Print requirements of pyproject.toml, for pip.

python tools/requirements.py build    what builds the library
python tools/requirements.py needed   what it needs
python tools/requirements.py oldest   the least versions of that
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(kind: str) -> list[str]:
    """Return the requirements of one kind."""
    content = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    if kind == "build":
        return list(content["build-system"]["requires"])
    needed = list(content["project"]["dependencies"])
    return needed if kind == "needed" else [re.sub(r">=([\d.]+)", r"==\1.*", n) for n in needed]


if __name__ == "__main__":
    print(*requirements(sys.argv[1]))
