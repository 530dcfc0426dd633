"""`python -m frazil`: the command line, or the doctor's report where the command-line library is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command line and return its exit code."""
    if find_spec("click") is None:
        from . import cli_doctor

        print("python -m frazil: the package click is missing, so this is all there is:", file=sys.stderr)
        return cli_doctor.main(sys.argv[1:])
    from .cli import main as command_line

    command_line()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
