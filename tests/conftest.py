"""Shared by all tests: an empty cache folder, a deterministic Hypothesis profile, templates and drivers."""

import atexit
import contextlib
import ctypes
import gc
import importlib
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

try:
    import resource
except ImportError:  # Windows
    resource = None

KEPT = pytest.StashKey[int]()  # shaders in Mesa's cache before the tests

# Records in the user's cache would change the choice of kernels, and the tests must not add to them.
os.environ["WEBMM_CACHE_DIR"] = tempfile.mkdtemp(prefix="webmm-tests-")
atexit.register(shutil.rmtree, os.environ["WEBMM_CACHE_DIR"], ignore_errors=True)

# Hundreds of tests start a process, which would compile all of webmm's modules and templates if nobody kept the code.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# lavapipe compiles most of the time: without LLVM's optimisations, a seventh faster. Half of make test-long keeps them.
os.environ.setdefault("GALLIVM_PERF", "nopt")

# Tests judge no times, so a measurement lasts a tenth of a user's; modules imported later take these as their defaults.
timing = importlib.import_module("webmm.engine.timing")
timing.WARM_UP, timing.SAMPLE_TIME = 0.02, 0.03
timing.time_launch.__defaults__ = (timing.WARM_UP, timing.SAMPLE_TIME)
timing.time_call.__defaults__ = (timing.WARM_UP,)
timing.sample_count.__defaults__ = (timing.SAMPLE_TIME,)

# No deadline: the first run of a shader compiles it, which takes seconds on a CPU. No database: it would add examples.
settings.register_profile(
    "webmm",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("webmm")


def shaders_kept():
    """Return how many shaders Mesa's cache holds: what lavapipe need not compile."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("MESA_SHADER_CACHE_DIR") or cache) / "mesa_shader_cache"
    return sum(1 for _ in folder.glob("??/*"))


def pytest_configure(config):
    config.stash[KEPT] = shaders_kept()


def pytest_terminal_summary(terminalreporter, config):
    """Say what the run took, beside the time by the clock: CONTRIBUTING.md has a budget for it."""
    if resource is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    minutes = sum(each.ru_utime + each.ru_stime for each in used) / 60
    largest = max(each.ru_maxrss for each in used) * (1 if sys.platform == "darwin" else 1024) / 1e9
    terminalreporter.write_line(
        f"{minutes:.1f} CPU-minutes on {os.cpu_count()} processors, at most {largest:.2f} GB a process; "
        f"shaders in Mesa's cache: {config.stash[KEPT]:,} before, {shaders_kept():,} after"
    )


def pytest_collection_modifyitems(items):
    """Run the quick files of units last: no process is then left alone with minutes of work, such as the wheel's."""
    items.sort(key=lambda item: "tests/unit/" in item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays: it is not visited again and again meanwhile, nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


FILES = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def trimmed():
    """Give the memory that a file's tests have freed back to the system: the C library keeps it in pieces.

    What stays, modules and caches, is frozen after each eighth file: visiting it after each took 4 % of all CPU time.
    Frozen after each file, with a device that the last test still held, a process grew from 0.5 to 1.9 GB.
    """
    yield
    eighth = next(FILES) % 8 == 0
    if eighth:
        gc.unfreeze()
    gc.collect()
    if eighth:
        gc.freeze()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # of the GNU C library only
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def swiftshader():
    """Return an environment that adds Chromium's software Vulkan driver: Dawn refuses Mesa 22's lavapipe."""
    icd = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
    assert icd.is_file(), f"Dawn is tested on Chromium's software driver, {icd}: tools/ensure-browser installs it"
    others = [str(path) for path in Path("/usr/share/vulkan/icd.d").glob("*.json")]
    return {**os.environ, "VK_DRIVER_FILES": ":".join([*others, str(icd)])}


@pytest.fixture(scope="session")
def page_folder(tmp_path_factory):
    """The built page: one for all processes of pytest-xdist, whose folders are in one folder; tests only read it."""
    from filelock import FileLock

    from webmm.page import bundle

    mine = tmp_path_factory.getbasetemp()
    folder = (mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "web-page"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            bundle.build(mine / "building")
            (mine / "building").rename(folder)  # complete, or not there
    return folder


@pytest.fixture
def templates(tmp_path, monkeypatch):
    """Return the folder of a copy of the templates, which is rendered instead of the original; tests may edit it."""
    render = importlib.import_module("webmm.wgsl.render")  # webmm.wgsl.render is also the name of a function
    folder = shutil.copytree(render.shader_folder(), tmp_path / "shaders")
    monkeypatch.setattr(render, "shader_folder", lambda: folder)
    render.environment.cache_clear()
    render._render.cache_clear()
    yield folder
    render.environment.cache_clear()
    render._render.cache_clear()


@pytest.fixture
def load_plugin():
    """Return the function that loads a plugin; unregister all plugins after the test."""
    from webmm import plugins

    yield plugins.load
    for what in plugins.registered():
        if what in plugins.registered():  # unregistering an op removes its stages, too
            plugins.unregister(what)


@pytest.fixture
def examples(tmp_path):
    """Return a copy of the examples in a folder outside the package."""
    return shutil.copytree(Path(__file__).parents[1] / "examples", tmp_path / "examples")
