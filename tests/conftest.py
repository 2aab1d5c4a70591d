"""What all tests share: one Hypothesis profile, the same examples every time and everywhere; templates to edit."""

import importlib
import shutil

import pytest
from hypothesis import HealthCheck, settings

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
