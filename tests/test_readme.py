"""The README's example runs as it stands and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_example_runs_and_prints_what_it_says() -> None:
    code = re.search(r"<!-- ci:example -->\n```python\n(.*?)```", README.read_text(), re.S)
    assert code is not None
    expected = re.findall(r"print\(.*\)  # (.*)", code[1])
    done = subprocess.run([sys.executable, "-c", code[1]], capture_output=True, text=True, check=True)
    assert expected and done.stdout.strip().splitlines()[-1] == expected[-1]
