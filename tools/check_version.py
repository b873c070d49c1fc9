"""Check that a tag such as v1.2.3 is the version that all files name, before it is released."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def stated_versions() -> dict[str, str]:
    """Return the version that each file names."""
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    changes = ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    citation = ROOT.joinpath("CITATION.cff").read_text(encoding="utf-8")
    recipe = ROOT.joinpath("recipe/recipe.yaml").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d\S*)", changes, re.MULTILINE)
    cited = re.search(r"^version: (\S+)", citation, re.MULTILINE)
    packed = re.search(r'^  version: "(\S+)"', recipe, re.MULTILINE)
    return {
        "pyproject.toml": project["project"]["version"],
        "CHANGELOG.md": newest[1] if newest else "none",
        "CITATION.cff": cited[1] if cited else "none",
        "recipe/recipe.yaml": packed[1] if packed else "none",
    }


def main(tag: str) -> int:
    """Print what differs; 0 if nothing does."""
    others = {name: found for name, found in stated_versions().items() if f"v{found}" != tag}
    for name, found in others.items():
        print(f"{name} names version {found}, but the tag is {tag}.", file=sys.stderr)
    return int(bool(others))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Give the tag: make check-version TAG=v1.2.3")
    sys.exit(main(sys.argv[1]))
