"""``python -m tests.fuzz``: the fuzzer with a kernel of one's choice, such as a sanitized one.

``--kernel FILE`` takes the place of the installed kernel module, before anything imports it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import mqstore.storage

KERNEL = "mqstore.storage._kernel"


def use_kernel(path: Path) -> None:
    """Load the module at ``path`` as the kernel."""
    spec = importlib.util.spec_from_file_location(KERNEL, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no extension module; name the built kernel")
    module = importlib.util.module_from_spec(spec)
    sys.modules[KERNEL] = module
    spec.loader.exec_module(module)
    mqstore.storage._kernel = module


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="mutated records")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--kernel", type=Path, help="a built kernel module")
    arguments = parser.parse_args()
    if arguments.kernel is not None:
        use_kernel(arguments.kernel)
    from tests.fuzz.campaign import run  # only now: it imports the kernel

    return run(arguments.records, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
