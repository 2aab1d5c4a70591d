"""The test suite of the Python array API standard on webmm's part of it: python tests/standard.py FOLDER.

FOLDER is a checkout of data-apis/array-api-tests with its submodule, whose requirements are installed. Special cases,
operators and elementwise functions run; the exit code is 1 if fewer pass than LEAST. This module is also the namespace
that the suite tests, which needs the names of dtypes that webmm has not, and a plugin of pytest: two lines of the suite
that take complex numbers for granted are changed while it is loaded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from webmm.calls import array_api

NAMES = ["float64", "int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "complex64", "complex128"]
LEAST = {"test_special_cases": 470, "test_operators_and_elementwise_functions": 150}  # tests that pass
EXAMPLES = {"test_special_cases": 2, "test_operators_and_elementwise_functions": 6}  # of each test
HELPERS = "array_api_tests.dtype_helpers"
CHANGES = {
    "for dt in complex_dtypes], key=lambda x: x[1]": "for dt in complex_dtypes], key=lambda x: x[1], default=(None, 0)",
    '"complex128": xp.float64}': '"complex128": None}',
}
PASSED = re.compile(r"\b(\d+) passed")


def change_helpers() -> None:
    """Load the helpers with CHANGES, before the suite imports them."""
    spec = importlib.util.find_spec(HELPERS)
    assert spec
    assert spec.origin, HELPERS
    text = Path(spec.origin).read_text(encoding="utf-8")
    for old, new in CHANGES.items():
        assert old in text, f"{HELPERS} has no {old!r}"
        text = text.replace(old, new)
    module = sys.modules[HELPERS] = importlib.util.module_from_spec(spec)
    exec(compile(text, spec.origin, "exec"), vars(module))


def passed(folder: Path, tests: str) -> int:
    """Return how many tests of a file pass."""
    paths = os.pathsep.join([str(Path(__file__).parent), str(folder), *sys.path[1:]])
    environment = {
        **{"ARRAY_API_TESTS_MODULE": "standard", "ARRAY_API_TESTS_VERSION": "2024.12"},
        **{"ARRAY_API_TESTS_SKIP_DTYPES": ",".join(NAMES), "PYTHONPATH": paths},
    }
    options = ("-q", "-p", "standard", "-p", "no:cacheprovider", "--disable-deadline", "--tb=no")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "--max-examples",
            str(EXAMPLES[tests]),
            f"array_api_tests/{tests}.py",
        ],
        **{"cwd": folder, "env": {**os.environ, **environment}, "check": False},
        **{"capture_output": True, "text": True},
    )
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-500:]]
    print(f"{tests}: {last[0]}", flush=True)
    found = PASSED.search(last[0])
    return int(found[1]) if found else 0


def main(folder: Path) -> int:
    """Return 1 if fewer tests pass than expected, else 0."""
    return int(any(passed(folder, tests) < least for tests, least in LEAST.items()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()) if len(sys.argv) == 2 else __doc__)
else:  # as the namespace, whose all(), any() and so on hide Python's
    globals().update({name: getattr(array_api, name) for name in dir(array_api) if not name.startswith("_")})
    __array_api_version__ = array_api.__array_api_version__
    __array_namespace_info__ = array_api.__array_namespace_info__
    globals().update({name: np.dtype(name) for name in NAMES})
    change_helpers()
