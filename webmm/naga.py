"""naga-cli as a subprocess: validate WGSL, and translate it to the languages that wgpu gives to drivers."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from webmm.config import settings
from webmm.errors import ConfigError, ShaderError, cited

VERSION = "29.0.3"  # the naga inside wgpu-native 29, which wgpu-py 0.32 brings
TARGETS = {"SPIR-V": "spv", "MSL": "metal", "HLSL": "hlsl"}
INSTALL = f"cargo install naga-cli --version {VERSION} --locked --root .tools"


def find() -> str:
    """Return the path of the pinned naga: the setting `naga`, then .tools/bin, then PATH.

    Raises ConfigError, which says how to install it, if it is missing or has another version.
    """
    return _find(settings().naga)


@functools.cache
def _find(named: str) -> str:
    places = [named] if named else [".tools/bin/naga", str(Path(__file__).parents[1] / ".tools/bin/naga"), "naga"]
    found = [path for path in map(shutil.which, places) if path]
    versions = {path: _version(path) for path in found}
    for path, version in versions.items():
        if version == VERSION:
            return path
    other = f"only version {', '.join(versions.values())}" if versions else "nothing"
    raise ConfigError(f"naga-cli {VERSION} is needed, but {other} was found; install it: {INSTALL}")


def _version(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split()[-1] if done.stdout else "unknown"


def translate(wgsl: str, label: str) -> dict[str, bytes]:
    """Validate `wgsl` and return its translation to each of TARGETS, SPIR-V in binary, the others in UTF-8.

    naga cannot write HLSL for matrix units, nor MSL for f64; those are left out. Raises ShaderError with the label,
    naga's message and the numbered source line.
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
            raise ShaderError(f"{label}: {cited(message, wgsl)}")
        return {target: path.read_bytes() for target, path in outputs.items()}
