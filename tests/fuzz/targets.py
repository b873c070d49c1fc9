"""What is fuzzed: each kind of file, with the changes that suit it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random

from fuzz.containers import change_container, change_prepared
from fuzz.hdf5_changes import change_hdf5
from fuzz.mutations import LARGE, Change, change_bytes, change_text, packed, several
from fuzz.odd import kept_cases, odd_cases
from fuzz.readings import use_of
from fuzz.seeds import Files, seeds_of
from fuzz.trees import change_json, change_npz
from klnmf.readers.formats import FORMATS

_TEXT = several(change_text)
# Share of the tries that begin with a file that once broke something.
SHARE_OF_BROKEN = 0.003


@dataclass(frozen=True)
class Target:
    """One kind of file."""

    name: str
    use: Callable[[Path], None]  # read what is in a folder, and judge it
    change: Callable[[Random, Files], Files]

    def mutated(self, random: Random) -> Files:
        """Files that nobody wrote."""
        good, broken = self.begun()
        is_broken = broken and random.random() < SHARE_OF_BROKEN
        return self.change(random, dict(random.choice(broken if is_broken else good)))

    @cache  # noqa: B019 -- targets live as long as the process
    def begun(self) -> tuple[list[Files], list[Files]]:
        """Files to begin with: good ones, and those that once broke something."""
        broken = odd_cases(self.name) | kept_cases(self.name)
        return list(seeds_of(self.name)), list(broken.values())


# ---- changes -------------------------------------------------------------------------------------


def _change_one(change: Change, random: Random, files: Files) -> Files:
    """Change one of the files, above all the one that the others belong to."""
    names = sorted(files)
    if len(names) > 1 and random.random() < 0.03:
        del files[random.choice(names)]
        return files
    name = random.choice([_main(files)] * 3 + names)
    if not name.endswith(".gz"):
        suited = change if name == _main(files) else _TEXT
        files[name] = suited(random, files[name])
    elif len(files[name]) < LARGE:
        files[name] = packed(random, _TEXT(random, gzip.decompress(files[name])))
    else:  # one that unpacks to gigabytes
        files[name] = change_bytes(random, files[name])
    return files


def _main(files: Files) -> str:
    """The file that the others lie beside or below."""
    known = [name for name in files if name.startswith(("matrix.", "docword."))]
    return known[0] if known else min(files, key=lambda name: (name.count("/"), len(name), name))


def _change_packable(random: Random, files: Files) -> Files:
    """Change text that may be packed, and pack it now and then."""
    files = _change_one(_TEXT, random, files)
    name = _main(files)
    if random.random() < 0.1 and not name.endswith(".gz"):
        files[f"{name}.gz"] = packed(random, files.pop(name))
    return files


def _change_folder(random: Random, files: Files) -> Files:
    """Change the files of a folder of texts, and their names."""
    files = _change_one(several(change_text, change_bytes), random, files)
    if random.random() < 0.1:
        name = random.choice(("x.txt", "a/b/c.txt", "é.txt", " .txt", ".txt", "a.txt/b.txt", "x"))
        files[name] = random.choice(list(files.values()) or [b""])
    return files


_CHANGES: dict[str, Callable[[Random, Files], Files]] = {
    "npz": partial(_change_one, change_npz),
    "10x": partial(_change_one, _TEXT),
    "uci": _change_packable,
    "10x-h5": partial(_change_one, change_hdf5),
    "h5ad": partial(_change_one, change_hdf5),
    "loom": partial(_change_one, change_hdf5),
    "parquet": partial(_change_one, several(change_bytes)),
    "texts": _change_folder,
    "tns": _change_packable,
    "tensor-npz": partial(_change_one, change_npz),
    "tensor-csv": _change_packable,
    "prepared": change_prepared,
    "model": partial(_change_one, change_container),
    "commands": partial(_change_one, change_container),
    "fit-checkpoint": partial(_change_one, change_container),
    "rank-checkpoint": partial(_change_one, change_container),
    "consensus-checkpoint": partial(_change_one, change_container),
    "consensus": partial(_change_one, change_container),
    "rank-selection": partial(_change_one, change_json),
}
# Every format of tables, those included that come later, and the other files.
TARGETS = {
    name: Target(name, use_of(name), _CHANGES.get(name, _change_packable))
    for name in dict.fromkeys((*FORMATS, *_CHANGES))
}
