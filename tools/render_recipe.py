"""Render the conda recipe for each Python, and compare what it asks for with pyproject.toml.

It needs py-rattler-build; no channel is asked, so it works without a network.
"""

import sys
import tomllib
from pathlib import Path

from rattler_build import Stage0Recipe, VariantConfig

ROOT = Path(__file__).resolve().parent.parent
# What conda-forge's settings would say.
VARIANTS = {
    "python": ["3.11.* *_cpython", "3.14.* *_cp314"],
    "cxx_compiler": ["gxx"],
    "c_stdlib": ["sysroot"],
    "c_stdlib_version": ["2.28"],
}


def main() -> int:
    """Print the rendered requirements; 1 if they are not those of the project."""
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    recipe = Stage0Recipe.from_yaml(ROOT.joinpath("recipe/recipe.yaml").read_text(encoding="utf-8"))
    wanted = {
        "host": {*project["build-system"]["requires"], "python", "pip"},
        "run": {*project["project"]["dependencies"], "python"},
    }
    differ = False
    for variant in recipe.render(VariantConfig(VARIANTS)):
        rendered = variant.recipe.to_dict()
        print(rendered["package"], *rendered["requirements"].items(), sep="\n  ")
        for part, names in wanted.items():
            found = {name.replace(" ", "") for name in rendered["requirements"][part]}
            if found != names:
                differ = True
                print(f"{part}: the recipe and pyproject.toml differ in {found ^ names}.")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
