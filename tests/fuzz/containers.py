"""Changes of klnmf's own files that get past their checksums."""

from __future__ import annotations

import hashlib
import json
from random import Random

import numpy as np

from fuzz.mutations import change_bytes, change_text
from fuzz.trees import (
    change_json,
    change_members,
    change_npy,
    change_values,
    members_of,
    zipped,
)

Files = dict[str, bytes]
HEADER = "header.json"


def change_container(random: Random, content: bytes) -> bytes:
    """Change a model or a checkpoint: its header, its arrays or its bytes."""
    if random.random() < 0.05:
        return change_bytes(random, content)
    try:
        members = members_of(content)
    except Exception:
        return change_bytes(random, content)
    for _ in range(random.choice((1, 1, 2, 3))):
        name = random.choice([HEADER] * len(members) + sorted(members))
        if name == HEADER:
            members[HEADER] = change_json(random, members.get(HEADER, b""))
        else:
            members[name] = change_npy(random, members[name])
            _sign(members, name)
    listed = list(members.items())
    if random.random() < 0.05:
        listed = change_members(random, members)
    return zipped(listed)


def _sign(members: Files, name: str) -> None:
    """Put the right checksum of a changed array into the header, where that still has a place."""
    try:
        header = json.loads(members[HEADER])
        about = {"sha256": hashlib.sha256(members[name]).hexdigest()}
        header["arrays"][name.removesuffix(".npy")] = about
        members[HEADER] = json.dumps(header).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return


def change_prepared(random: Random, files: Files) -> Files:
    """Change files of a prepared matrix, and most of the time correct its sizes and checksums."""
    changed = dict(files)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        names = [HEADER] * 4 + sorted(set(changed) - {HEADER})
        name = random.choice(names)
        if name not in changed:
            continue
        if name == HEADER:
            changed[HEADER] = change_json(random, changed[HEADER])
        elif random.random() < 0.03:
            del changed[name]
        elif name.endswith(".npy"):
            changed[name] = _change_stored(random, changed[name])
        else:
            changed[name] = change_text(random, changed[name])
    if random.random() < 0.02:
        changed[HEADER] = change_bytes(random, changed.get(HEADER, b""))
    if random.random() < 0.9:
        _sign_files(changed)
    return changed


def _change_stored(random: Random, content: bytes) -> bytes:
    """Other values after the same head; seldom another file."""
    if random.random() < 0.15:
        return change_npy(random, content)
    kind = content[:128].split(b"'")[3].decode("latin-1") if content.count(b"'") > 3 else "<f4"
    try:
        values = np.frombuffer(content[128:], dtype=kind)
    except (ValueError, TypeError):
        return change_npy(random, content)
    return content[:128] + change_values(random, values).tobytes()


def _sign_files(files: Files) -> None:
    try:
        header = json.loads(files[HEADER])
        for name, about in header["files"].items():
            if name in files:
                about["bytes"] = len(files[name])
                about["sha256"] = hashlib.sha256(files[name]).hexdigest()
        files[HEADER] = json.dumps(header).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
