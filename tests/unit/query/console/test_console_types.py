"""The types of the console's scripts, which JSDoc comments declare."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from mqstore.query.console.files import ROOT as STATIC
from tests.locks import ROOT
from tests.unit.query.console.test_vendored_files import LISTED

BUILT: Final = ROOT / "build" / "console"
TSC: Final = BUILT / "node_modules" / "typescript" / "lib" / "tsc.js"
OPTIONS: Final = {
    "allowJs": True,
    "checkJs": True,
    "noEmit": True,
    "strict": True,
    "noImplicitReturns": True,
    "noUncheckedIndexedAccess": True,
    "noUnusedLocals": True,
    "skipLibCheck": True,
    "target": "ES2023",
    "lib": ["ES2023", "DOM", "DOM.Iterable"],
    "module": "ESNext",
    "moduleResolution": "Bundler",
}
pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not TSC.exists(),
    reason="needs Node and TypeScript; `requirements/vendor --types build/console` gets it",
)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The scripts, with declarations in place of those of others."""
    shutil.copytree(STATIC, tmp_path / "static")
    (tmp_path / "node_modules").symlink_to(BUILT / "node_modules")
    for each in LISTED["files"]:
        if "module" in each:
            path = tmp_path / "static" / "vendor" / each["target"]
            path.unlink()
            text = f'export * from "{each["module"]}";'
            if each["package"] in ("htm", "uplot"):
                text = f'export {{ default }} from "{each["module"]}";'
            path.with_suffix(".d.ts").write_text(text)
    settings = {"compilerOptions": OPTIONS, "include": ["static/**/*.js"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    return tmp_path


def test_the_scripts_have_the_types_that_they_declare(copied: Path) -> None:
    assert check(copied) == ""


def test_the_check_finds_a_wrong_type(copied: Path) -> None:
    (copied / "static" / "wrong.js").write_text(
        'import { count } from "./lib/format.js";\ncount("1");\n'
    )
    assert "not assignable to parameter of type 'number'" in check(copied)


def check(directory: Path) -> str:
    """Return the errors of the compiler."""
    command = ["node", str(TSC), "--project", str(directory), "--pretty", "false"]
    return subprocess.run(command, capture_output=True, text=True).stdout
