"""Whether kernels of a higher instruction set can be reached only through their table.

Reads object files with nm. Code that other files may call, or that runs when the module is loaded,
must not be in them: the linker merges inline functions of the same name, and keeps whichever it
likes, so that an ordinary function might then need AVX-512. `python tools/check_sets.py FILE...`
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

# Types of nm for code that is not local to its file: defined (T), weak (W), chosen by the loader
# (i); and the names of functions that run when the module is loaded.
SHARED_CODE = set("TWi")
ON_LOADING = re.compile(r"_GLOBAL__sub_I|__cxx_global_var_init|_GLOBAL__I_")


def reachable_code(listing: str) -> list[str]:
    """Names of functions in the output of nm that can run without the table."""
    found = []
    for line in listing.splitlines():
        match = re.fullmatch(r"(?:\S+\s+)?([A-Za-z?-])\s+(\S.*)", line.strip())
        if match and (match[1] in SHARED_CODE or ON_LOADING.search(match[2])):
            found.append(match[2])
    return found


def main() -> int:
    """Check the files, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="object files of higher instruction sets")
    parser.add_argument("--nm", default="nm", help="nm of the compiler")
    args = parser.parse_args()
    bad = 0
    for file in args.files:
        listing = subprocess.run(
            [args.nm, "--defined-only", file], check=True, capture_output=True, text=True
        ).stdout
        if not listing.strip():
            raise SystemExit(f"{file}: nm finds no symbols")
        for name in reachable_code(listing):
            print(f"{file}: {name} can be called by code for any processor", file=sys.stderr)
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
