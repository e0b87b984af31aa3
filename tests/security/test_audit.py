"""`make check` fails for a known vulnerability, and for nothing else that an audit can meet."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parents[2] / ".ci" / "audit.py"
SOUND = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "version": "3", "skip_reason": "not found"}


def audit(folder: Path, program: str) -> tuple[int, str]:
    """The audit with ``program`` in the place of pip-audit: its status, and what it says."""
    (folder / "pip_audit.py").write_text(program)
    command = [sys.executable, str(AUDIT)]
    run = subprocess.run(command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout.strip()


def says(*packages: dict[str, Any]) -> str:
    return f"print({json.dumps({'dependencies': packages})!r})"


@pytest.mark.skipif(not AUDIT.exists(), reason="the script is in a checkout only")
@pytest.mark.parametrize(
    ("program", "status", "last"),
    [
        (says(SOUND, UNKNOWN), 0, "1 packages audited, 0 known vulnerabilities"),
        (says(SOUND, FLAWED), 1, "2 packages audited, 1 known vulnerabilities"),
        (says(UNKNOWN), 0, "dependencies NOT audited: the vulnerability service knows none of the packages"),
        ("import sys; sys.exit('no route to pypi')", 0, "dependencies NOT audited: no route to pypi"),
        ("", 0, "dependencies NOT audited: pip-audit said nothing"),
    ],
    ids=["sound", "flawed", "unknown", "unreachable", "silent"],
)
def test_the_audit(program: str, status: int, last: str, tmp_path: Path) -> None:
    got, said = audit(tmp_path, program)
    assert (got, said.splitlines()[-1]) == (status, last)
    assert ("b 2: CVE-1, fixed in 3" in said) is (status == 1)
