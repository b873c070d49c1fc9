"""JSON from files of strangers: bounded in size, and ValueError for all that is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE_LIMIT = 1 << 24


def parse_json(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Value of a JSON text; a ValueError if it is not JSON, or nested too deep.

    Bytes are UTF-8, 16 or 32, as JSON recognises them. ``parse_constant`` is as in `json.loads`.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json("[" * 200_000)
    Traceback (most recent call last):
    ...
    ValueError: its lists and objects are nested too deep
    """
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg}, at character {error.pos + 1}") from error


def read_json(path: Path, limit: int = SIZE_LIMIT) -> Any:
    """Value in a JSON file of at most ``limit`` bytes; see `parse_json`."""
    with path.open("rb") as stream:
        text = stream.read(limit + 1)
    if len(text) > limit:
        raise ValueError(f"it has more than {limit:,} bytes")
    return parse_json(text)
