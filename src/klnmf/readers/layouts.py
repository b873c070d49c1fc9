"""What a .csv, .tsv or .parquet file holds: a table of counts, triplets of them, or texts.

The beginning of a file decides. If it does not, the file is refused with a question: a wrong guess
would be fitted without an error.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option

Header = Sequence[str] | None
Records = Sequence[Sequence[Any]]
# Records that are looked at, and about how many fields of them.
PEEK, PEEKED_FIELDS = 1000, 20_000
# What columns of texts are called; some blanks are then enough to take them for texts.
_TEXT_NAME = re.compile(
    r"(.*[_ ])?(text|texts|body|content|contents|abstract|description|review|comment|comments|"
    r"message|sentence|tweet|post|summary|title|headline|lyrics|transcript|speech|document)"
)
# Mean number of words from which any column is one of texts, and the only one beside names.
_WORDS_OF_TEXTS, _WORDS_OF_ONE = 6, 3
_COUNT_NAMES = ("count", "counts", "freq", "frequency", "frequencies", "times", "occurrences")
_ID_NAME = re.compile(r"(.*[^a-z])?(id|ids|index|name|names|barcode|barcodes|sample|samples|row)")
_CAMEL_ID = re.compile(r".*[a-z]I[Dd]")


def is_number(field: Any) -> bool:
    """Whether a field can be read as a number.

    Python also takes 1_000 and the digits of other scripts for numbers, which no file means.

    >>> is_number("1e3"), is_number("1_000"), is_number("٣"), is_number(None)
    (True, False, False, False)
    """
    try:
        number_of(field)
    except (TypeError, ValueError):
        return False
    return True


def number_of(field: Any) -> float:
    """Return a field as a number, or raise a ValueError if it does not hold one."""
    if isinstance(field, str) and not are_plain(field):
        raise ValueError(f"{field!r} is not a number")
    return float(field)


def are_plain(text: str) -> bool:
    """Whether fields have nothing that only Python takes for a part of a number."""
    return text.isascii() and "_" not in text


def beginning(records: Iterator[list[Any]]) -> list[list[Any]]:
    """Return the first records: fewer of them where they are wide, and three at least."""
    found: list[list[Any]] = []
    n_fields = 0
    while n_fields < PEEKED_FIELDS or len(found) < 4:
        record = next(records, None)
        if record is None or len(found) > PEEK:
            break
        found.append(record)
        n_fields += len(record)
    return found


# ---- texts ---------------------------------------------------------------------------------------


def check_not_texts(path: Path, header: Header, records: Records) -> None:
    """Refuse what looks like texts, and say how to read it as such."""
    width = max(map(len, records), default=0)
    if header is None or len(header) != width or not records:
        return
    found = {}
    for j, name in enumerate(header):
        cells = [record[j] for record in records if len(record) > j]
        words = fmean(len(cell.split()) if isinstance(cell, str) else 1 for cell in cells)
        is_called_so = _TEXT_NAME.fullmatch(name.strip().lower()) is not None
        needed = 1.5 if is_called_so else _WORDS_OF_ONE if width == 2 else _WORDS_OF_TEXTS
        if words >= needed:
            found[name] = words
    if found:
        name = max(found, key=lambda name: found[name])
        raise ReadError(
            path,
            f"this looks like texts (column {name!r}), not counts: add "
            f"{option('text_field', name)} to count their words. If these are counts after all, "
            f"add {option('layout', 'table')} or {option('layout', 'triplets')}.",
        )


# ---- tables and triplets -------------------------------------------------------------------------


def detected_layout(path: Path, header: Header, records: Records) -> str:
    """Return "triplets" or "table", or raise a `ReadError` that asks.

    Three columns, the last of them numbers, are triplets if the second has no numbers, which a
    table of counts would have, or if the header calls the last one counts or the others ids.
    """
    if header is not None and len(header) > 2 and all(map(_is_called_id, header[:2])):
        if len(header) == 3:
            return "triplets"
        example = option("columns", list(header[:3]))
        problem = (
            f"{header[0]!r} and {header[1]!r} look like the rows and columns of triplets, with "
        )
        problem += f"more columns beside them: name those to read, for example {example}. If this "
        raise ReadError(path, f"{problem}is a table of counts, add {option('layout', 'table')}.")
    full = [record for record in records if len(record) == 3]
    are_three = 2 * len(full) > len(records) if header is None else len(header) == 3
    if not are_three or not any(is_number(record[2]) for record in full):
        return "table"
    firsts, seconds = [record[0] for record in full], [record[1] for record in full]
    if header is not None and header[2].strip().lower() in _COUNT_NAMES:
        return "triplets"
    if not any(map(is_number, seconds)):
        return "triplets"
    if len(set(firsts)) == len(firsts):
        return "table"
    if not all(map(is_number, seconds)):
        return "triplets"
    raise repeated_names(path, firsts)


def repeated_names(path: Path, firsts: Sequence[Any]) -> ReadError:
    """Error of three columns that may be a table or triplets."""
    seen = set[Any]()
    name = next(name for name in firsts if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    problem = f"the first of its three columns has {str(name)!r} more than once. If the lines are "
    problem += f"row, column and count, add {option('layout', 'triplets')}. If they are a table, "
    problem += f"add {option('layout', 'table')}"
    return ReadError(path, f"{problem}, and {_no_index()} if the first column holds counts too.")


def names_come_first(path: Path, header: Header, records: Records) -> bool:
    """Whether the first column of a table names the rows, or a `ReadError` that asks.

    It does if it holds anything but numbers, if its header says so or is empty, as pandas and R
    write it, or if it numbers the rows.
    """
    cells = [record[0] for record in records if record]
    is_narrow = max(map(len, records)) == 1  # another error says so
    if is_narrow or not all(map(is_number, cells)):
        return True
    if header is not None and (is_id_name(header[0]) or len(header) < len(records[0])):
        return True
    if len(cells) >= 3 and cells in ([str(i + k) for i in range(len(cells))] for k in (0, 1)):
        return True
    name = "" if header is None else f" {header[0]!r}"
    problem = f"the first column{name} holds numbers, which may be names of rows or counts."
    names = f"{option('index', True)} if they are names"
    raise ReadError(path, f"{problem} Add {names}, {_no_index()} if they are counts.")


def is_id_name(name: str) -> bool:
    """Whether a column with this name holds names of rows.

    >>> is_id_name(""), is_id_name("doc_id"), is_id_name("userId"), is_id_name("candid")
    (True, True, True, False)
    """
    plain = name.strip()
    is_one = _ID_NAME.fullmatch(plain.lower()) or _CAMEL_ID.fullmatch(plain)
    return not plain or is_one is not None


def _is_called_id(name: str) -> bool:
    return bool(name.strip()) and is_id_name(name)


def check_header(path: Path, first: Sequence[str]) -> None:
    """Refuse a first line of numbers: it holds names of columns, or counts without a header."""
    is_numbered = len(first) > 3 and list(first) in (
        [str(j + k) for j in range(len(first))] for k in (0, 1)
    )
    if len(first) > 1 and all(map(is_number, first)) and not is_numbered:
        problem = "the first line holds numbers, which may be names of columns or counts. Add "
        names, counts = option("header", True), option("header", False)
        raise ReadError(path, f"{problem}{names} if they are names, {counts} if they are counts.")


def _no_index() -> str:
    return option("index", False)
