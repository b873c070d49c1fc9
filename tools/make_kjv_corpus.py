"""Build ``src/klnmf/data/kjv.npz``, the word counts of the King James Bible by chapter.

The text is in the public domain. Debian ships it in ``bible-kjv-text`` with a reader, the
``bible`` command, in ``bible-kjv``::

    apt-get install bible-kjv bible-kjv-text
    python tools/make_kjv_corpus.py

which reads one verse per line, such as ``Ge1:1 In the beginning God created ...``, from
``bible -f gen1:1-rev22:21``. A dump made elsewhere can be given instead::

    bible -f gen1:1-rev22:21 </dev/null >kjv.txt
    python tools/make_kjv_corpus.py --text kjv.txt

The same text gives the same bytes: members are stored in a fixed order with a fixed date
(the deflate stream can only differ between different builds of zlib).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "src" / "klnmf" / "data" / "kjv.npz"

N_CHAPTERS = 1189
N_VERSES = 31102

SECTIONS = ("Law", "History", "Wisdom", "Prophets", "Gospels", "Acts", "Letters", "Revelation")

# Per section: the abbreviation that the ``bible`` command prints, then the book's name.
BOOKS_BY_SECTION: dict[str, str] = {
    "Law": "Ge=Genesis Exo=Exodus Lev=Leviticus Num=Numbers Deu=Deuteronomy",
    "History": (
        "Josh=Joshua Jdgs=Judges Ruth=Ruth 1Sm=1_Samuel 2Sm=2_Samuel 1Ki=1_Kings 2Ki=2_Kings "
        "1Chr=1_Chronicles 2Chr=2_Chronicles Ezra=Ezra Neh=Nehemiah Est=Esther"
    ),
    "Wisdom": "Job=Job Psa=Psalms Prv=Proverbs Eccl=Ecclesiastes SSol=Song_of_Solomon",
    "Prophets": (
        "Isa=Isaiah Jer=Jeremiah Lam=Lamentations Eze=Ezekiel Dan=Daniel Hos=Hosea Joel=Joel "
        "Amos=Amos Obad=Obadiah Jonah=Jonah Mic=Micah Nahum=Nahum Hab=Habakkuk Zep=Zephaniah "
        "Hag=Haggai Zec=Zechariah Mal=Malachi"
    ),
    "Gospels": "Mat=Matthew Mark=Mark Luke=Luke John=John",
    "Acts": "Acts=Acts",
    "Letters": (
        "Rom=Romans 1Cor=1_Corinthians 2Cor=2_Corinthians Gal=Galatians Eph=Ephesians "
        "Phi=Philippians Col=Colossians 1Th=1_Thessalonians 2Th=2_Thessalonians 1Tim=1_Timothy "
        "2Tim=2_Timothy Titus=Titus Phmn=Philemon Heb=Hebrews Jas=James 1Pet=1_Peter "
        "2Pet=2_Peter 1Jn=1_John 2Jn=2_John 3Jn=3_John Jude=Jude"
    ),
    "Revelation": "Rev=Revelation",
}

# Function words, with the archaic forms of the translation. Content verbs stay in.
STOP_LIST = """
    a about above according after again against all also although always am among amongst an and
    another any are art as at away
    back be because became become been before began behold being beside besides between betwixt
    beyond both brought but by
    call called came can cannot canst come cometh concerning could couldest
    did didst do doest doeth done dost doth down
    each either else even ever every
    few first for forth from
    gave get give given go goeth going gone got
    had hadst has hast hath have having he hence her here hereby herein hereof herself hers him
    himself his hither how howbeit
    i if in indeed insomuch into is it its itself
    know known knew
    lest let like likewise
    made make maketh many may mayest me mine might mightest more moreover most much must my myself
    nay neither never nevertheless no none nor not nothing notwithstanding now
    o of off oft on once one only or other others otherwise ought our ours ourselves out over own
    part per perhaps put
    rather
    said saidst saith same save saw saying sayest say says second see seeing seen sent set shall
    shalt she should shouldest since so some something speak spake such surely
    take taken than that the thee their theirs them themselves then thence there thereby therefore
    therein thereof thereon thereto therewith these they thine thing things this thither those thou
    though three through throughout thus thy thyself till to together too took toward towards two
    under until unto up upon us
    verily very
    was wast we well went were wert what whatsoever when whence whensoever where whereas whereby
    wherefore wherein whereof whereon wheresoever whereto whereupon wherewith whether which while
    whiles whilst whither whithersoever who whom whomsoever whose whoso whosoever why will wilt with
    withal within without would wouldest
    ye yea yes yet yonder you your yours yourself yourselves
"""
STOP_WORDS = frozenset(STOP_LIST.split())

VERSE = re.compile(r"([1-3]?[A-Za-z]+)([0-9]+):[0-9]+ (.*)")
POSSESSIVE = re.compile(r"'s\b")
WORD = re.compile(r"[a-z]+")


def read_text(path: Path | None) -> str:
    """Return the dump, one verse per line, from a file or from the ``bible`` command."""
    if path is not None:
        return path.read_text(encoding="ascii")
    command = ["bible", "-f", "gen1:1-rev22:21"]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, encoding="ascii"
        )
    except FileNotFoundError as error:
        raise SystemExit(
            "The 'bible' command is missing: install the Debian packages bible-kjv and "
            "bible-kjv-text, or give a dump with --text."
        ) from error
    return answer.stdout


def book_table() -> tuple[dict[str, int], list[str], list[int]]:
    """Return the book index by abbreviation, the book names and the section of each book."""
    index_of: dict[str, int] = {}
    names: list[str] = []
    section_of_book: list[int] = []
    for section, name in enumerate(SECTIONS):
        for entry in BOOKS_BY_SECTION[name].split():
            abbreviation, _, book = entry.partition("=")
            index_of[abbreviation] = len(names)
            names.append(book.replace("_", " "))
            section_of_book.append(section)
    return index_of, names, section_of_book


def words_of(verse: str) -> list[str]:
    """Lower-case words of letters; ``king's`` counts as ``king``, a hyphen separates."""
    words = WORD.findall(POSSESSIVE.sub("", verse.lower()))
    return [word for word in words if len(word) > 1 and word not in STOP_WORDS]


def count_by_chapter(text: str) -> dict[tuple[int, int], Counter[str]]:
    """Return the word counts of each (book index, chapter number), in the order of the text."""
    index_of, _, _ = book_table()
    chapters: dict[tuple[int, int], Counter[str]] = {}
    n_verses = 0
    for line in text.splitlines():
        match = VERSE.fullmatch(line.rstrip())
        if match is None:
            raise SystemExit(f"Not a verse such as 'Ge1:1 In the beginning ...': {line!r}")
        key = (index_of[match[1]], int(match[2]))
        chapters.setdefault(key, Counter()).update(words_of(match[3]))
        n_verses += 1
    if (len(chapters), n_verses) != (N_CHAPTERS, N_VERSES):
        raise SystemExit(
            f"Expected {N_CHAPTERS} chapters and {N_VERSES} verses, "
            f"found {len(chapters)} and {n_verses}: is the dump complete?"
        )
    return chapters


def smallest_unsigned(values: list[int]) -> npt.NDArray[np.unsignedinteger]:
    """Store nonnegative integers in the narrowest unsigned type that holds the largest."""
    return np.asarray(values, dtype=np.min_scalar_type(max(values)))


def joined(names: list[str]) -> npt.NDArray[np.uint8]:
    """Newline-joined ASCII bytes: a quarter of a unicode array, and no pickle."""
    return np.frombuffer("\n".join(names).encode("ascii"), dtype=np.uint8)


def build_arrays(text: str, min_chapters: int) -> dict[str, npt.NDArray[np.unsignedinteger]]:
    """Return every array of the archive, in the order in which they are written."""
    chapters = count_by_chapter(text)
    _, book_names, section_of_book = book_table()
    n_chapters_with = Counter(word for counts in chapters.values() for word in counts)
    vocabulary = sorted(word for word, n in n_chapters_with.items() if n >= min_chapters)
    column_of = {word: column for column, word in enumerate(vocabulary)}

    indptr: list[int] = [0]
    indices: list[int] = []
    data: list[int] = []
    for counts in chapters.values():
        row = sorted((column_of[word], n) for word, n in counts.items() if word in column_of)
        indices.extend(column for column, _ in row)
        data.extend(n for _, n in row)
        indptr.append(len(indices))
    books = [book for book, _ in chapters]
    return {
        "indptr": smallest_unsigned(indptr),
        "indices": smallest_unsigned(indices),
        "data": smallest_unsigned(data),
        "shape": smallest_unsigned([len(chapters), len(vocabulary)]),
        "vocabulary": joined(vocabulary),
        "chapter_names": joined([f"{book_names[book]} {n}" for book, n in chapters]),
        "book": smallest_unsigned(books),
        "book_names": joined(book_names),
        "section": smallest_unsigned([section_of_book[book] for book in books]),
        "section_names": joined(list(SECTIONS)),
    }


def write_archive(path: Path, arrays: dict[str, npt.NDArray[np.unsignedinteger]]) -> None:
    """Write an ``.npz`` whose bytes depend on the arrays alone: fixed dates, modes and order."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
            np.lib.format.write_array(
                member, np.ascontiguousarray(little_endian), version=(1, 0), allow_pickle=False
            )
            header = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            header.compress_type = zipfile.ZIP_DEFLATED
            header.create_system = 3
            header.external_attr = 0o644 << 16
            archive.writestr(header, member.getvalue(), compresslevel=9)


def main() -> None:
    """Read the text, count, write, and print what was written."""
    parser = argparse.ArgumentParser(description="Build the embedded King James Bible counts.")
    parser.add_argument("--text", type=Path, help="dump made with: bible -f gen1:1-rev22:21")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--min-chapters", type=int, default=3, help="drop words in fewer chapters")
    options = parser.parse_args()

    arrays = build_arrays(read_text(options.text), options.min_chapters)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_archive(options.output, arrays)
    written = options.output.read_bytes()
    n_rows, n_columns = arrays["shape"]
    n_nonzeros = arrays["data"].size
    print(f"{options.output}: {n_rows} chapters x {n_columns} words, {n_nonzeros} nonzeros")
    print(f"{len(written)} bytes, sha256 {hashlib.sha256(written).hexdigest()}")


if __name__ == "__main__":
    main()
