"""naga-cli as a subprocess: validate WGSL, and translate it to the languages that wgpu gives to drivers."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from webmm.config import settings, user_file, variable
from webmm.errors import ConfigError
from webmm.wgsl.compilers import refused

VERSION = "29.0.3"  # the naga inside wgpu-native 29, which wgpu-py 0.32 brings; tools/ensure-naga builds it
# `webmm check` passes with each of these; their major versions are accepted. 28 lacks `enable wgpu_cooperative_matrix`.
TRIED = ("29.0.0", VERSION, "30.0.1")
TARGETS = {"SPIR-V": "spv", "MSL": "metal", "HLSL": "hlsl"}
CHECKOUT = Path(__file__).parents[2]
INSTALL = (
    f"cargo install naga-cli --version {VERSION} --locked",
    "brew install naga-cli (Homebrew, for macOS and Linux)",
    "tools/ensure-naga in a checkout of webmm, which also installs Rust on Debian",
)


def find() -> str:
    """Return the path of naga: the setting `naga`, or else the first of .tools/bin of webmm's checkout and PATH.

    Raises ConfigError, which says how to install it, if there is none of an accepted version.
    """
    return _find(settings().naga)


def version() -> str:
    """Return the version of that naga; raises ConfigError as `find()` does."""
    return _version(find())


@functools.cache
def _find(named: str) -> str:
    places = [named] if named else [str(CHECKOUT / ".tools/bin/naga"), "naga"]
    found = list(filter(None, map(shutil.which, places)))
    for path in found:
        if _accepted(_version(path)):
            return path
    other = ", ".join(f"version {_version(path)} at {path}" for path in found) or "nothing"
    asked = f" for the setting naga = {named!r}" if named else ""
    raise ConfigError(
        f"naga-cli {_major(TRIED[0])} to {_major(TRIED[-1])} is needed (tried: {', '.join(TRIED)}), but {other} was "
        f"found{asked}; install it by {', or '.join(INSTALL)}; or set {variable('naga')}, or naga in {user_file()}, to "
        "its path"
    )


def _accepted(version: str) -> bool:
    return _major(TRIED[0]) <= _major(version) <= _major(TRIED[-1])


def _major(version: str) -> int:
    major = version.split(".")[0]
    return int(major) if major.isdecimal() else 0


@functools.cache
def _version(path: str) -> str:
    """Return what `path --version` ends with; "unknown" if it is no such program."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: it does not print text
        return "unknown"
    return (done.stdout.split() or ["unknown"])[-1]


def translate(wgsl: str, label: str) -> dict[str, bytes]:
    """Validate `wgsl` and return its translation to each of TARGETS, SPIR-V in binary, the others in UTF-8.

    naga cannot write HLSL for matrix units, nor MSL for f64; those are left out. Raises ShaderError with the label,
    naga's message and the line that it means.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "shader.wgsl")
        source.write_text(wgsl)
        matrix_units = "enable wgpu_cooperative_matrix;" in wgsl
        absent = {"HLSL"} if matrix_units else {"MSL"} if "f64" in wgsl else set()
        targets = {target: suffix for target, suffix in TARGETS.items() if target not in absent}
        outputs = {target: Path(folder, f"shader.{suffix}") for target, suffix in targets.items()}
        options = ["--metal-version", "2.3"] if matrix_units or "extractBits(" in wgsl else []
        command = [find(), *options, str(source), *map(str, outputs.values())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            message = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr).strip()
            raise refused(label, message, wgsl)
        return {target: path.read_bytes() for target, path in outputs.items()}
