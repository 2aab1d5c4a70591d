"""What all tests share: a cache of their own, one Hypothesis profile with the same examples; templates to edit."""

import atexit
import importlib
import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# Records that a user tuned would change what is chosen, and ours are none of theirs.
os.environ["WEBMM_CACHE_DIR"] = tempfile.mkdtemp(prefix="webmm-tests-")
atexit.register(shutil.rmtree, os.environ["WEBMM_CACHE_DIR"], ignore_errors=True)

# No deadline: the first run of a shader compiles it, for seconds on a CPU. No database: it would be another input.
settings.register_profile(
    "webmm",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("webmm")


@pytest.fixture
def templates(tmp_path, monkeypatch):
    """Return the folder of a copy of the templates, which are rendered in their place; a test may edit them."""
    render = importlib.import_module("webmm.render")  # the package's name for the function hides the module
    folder = shutil.copytree(render.shader_folder(), tmp_path / "shaders")
    monkeypatch.setattr(render, "shader_folder", lambda: folder)
    render.environment.cache_clear()
    render._render.cache_clear()
    yield folder
    render.environment.cache_clear()
    render._render.cache_clear()
