"""Known vulnerabilities in what is installed here: fails for one; says so where no service could be asked.

pip-audit asks PyPI; behind a mirror without its vulnerability data, or without a network, nothing can be said.
"""

import json
import subprocess
import sys

TIMEOUT_S = 300
COMMAND = [sys.executable, "-m", "pip_audit", "--format=json", "--progress-spinner=off", "--skip-editable"]


def main() -> int:
    try:
        run = subprocess.run(COMMAND, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        packages = json.loads(run.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return not_audited(f"no answer within {TIMEOUT_S} s")
    except ValueError:
        return not_audited((run.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:120])
    asked = [package for package in packages if "skip_reason" not in package]
    if not asked:
        return not_audited("the vulnerability service knows none of the packages")
    found = [(package, flaw) for package in asked for flaw in package["vulns"]]
    for package, flaw in found:
        fixed = ", ".join(flaw["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
    print(f"{len(asked)} packages audited, {len(found)} known vulnerabilities")
    return 1 if found else 0


def not_audited(why: str) -> int:
    print(f"dependencies NOT audited: {why}")
    return 0


sys.exit(main())
