"""Print what packages of ours need from elsewhere, one requirement a line.

``python third_party.py pyproject.toml… [+EXTRA]``: installed in a layer of its own, it is not
installed again when only our code changed.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(path: Path, extras: list[str]) -> list[str]:
    """Of one pyproject.toml, with those of the extras that it has."""
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(each for name in extras for each in optional.get(name, []))]


def main(words: list[str]) -> None:
    extras = [word[1:] for word in words if word.startswith("+")]
    found = {
        each
        for word in words
        if not word.startswith("+")
        for each in requirements(Path(word), extras)
        if not each.startswith("mqstore-")
    }
    sys.stdout.write("".join(f"{each}\n" for each in sorted(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
