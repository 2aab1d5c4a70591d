"""Runs the table of calls with webmm.js in node on Dawn: by default the calls with float16, which needs a GPU.

    python tests/web/dawn_calls.py --page PAGE --dawn .../webgpu/index.js [--node NODE] [--all]

PAGE is the output folder of `webmm bundle`. Prints the wrong cases and the number of right ones; exits with 1 if any
case is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.web.table import Outcome, as_json, cases, faults


def main() -> None:
    """Run the calls and check their outcomes."""
    parser = argparse.ArgumentParser(description="Check the calls of webmm.js in node on Dawn.")
    parser.add_argument("--page", required=True, type=Path)
    parser.add_argument("--dawn", required=True, type=Path, help="index.js of npm's webgpu")
    parser.add_argument("--node", default="node")
    parser.add_argument("--all", action="store_true", help="all calls, not only those with float16")
    options = parser.parse_args()
    table = [case for case in cases() if options.all or "shader-f16" in case.needs]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([as_json(case) for case in table], file)
        file.flush()
        script, module = Path(__file__).with_name("node_calls.mjs"), (options.page / "webmm.js").resolve()
        command = [options.node, str(script), str(module), str(options.dawn.resolve()), file.name]
        said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=600, check=True).stdout)
    wrong = faults([Outcome.of_json(row) for row in said["outcomes"]], table, said["features"])
    for name, what in wrong.items():
        print(f"{name}: {what}")
    with_or_without = "with" if "shader-f16" in said["features"] else "without"
    print(f"{len(table) - len(wrong)} of {len(table)} cases are right, {with_or_without} float16")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
