"""The time model on a device other than the one it was fitted on: how a probe and tuning correct it, in counts."""

import dataclasses
import datetime
import json
import math
import random

import pytest
from test_choose_model import H200, device, drawn, predicted

from webmm.choose import adapted, model, published, tables, tuned
from webmm.choose.field import field
from webmm.engine import rates
from webmm.engine.rates import Rates
from webmm.kernels.base import Capabilities
from webmm.kernels.gemm.persistent import Persistent
from webmm.measure import tuner
from webmm.measure.records import Record
from webmm.problems.gemm import gemm

FITTED_AT = Rates(61_000.0, 4_200.0, 8_000.0, 2.0, 132)
MODEL = dataclasses.replace(H200, rates=FITTED_AT)
RADEON = device("AMD Radeon RX 7900")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tables, "shipped", lambda: {"nvidia-h200": MODEL})
    return tmp_path


def probed(gpu, **changes):
    """Store rates for `gpu`: the H200's, with `changes`."""
    found = dataclasses.replace(FITTED_AT, **changes)
    rates.keep(gpu, found)
    return found


# Rates measured by a probe


def test_a_gpu_of_another_vendor_is_predicted_from_its_rates_alone():
    gpu = device("AMD Radeon RX 7900")
    before = predicted(gemm(3000, 3000, 3000), gpu)
    found = probed(gpu)
    assert predicted(gemm(3000, 3000, 3000), gpu) != before
    assert adapted.model_of(gpu).families == {}  # another vendor's compiler
    assert adapted.model_of(gpu).machine.multiprocessors == found.workgroups


def test_predictions_scale_with_the_limiting_rate():
    row, square, small = gemm(1, 16384, 16384), gemm(4096, 4096, 4096), gemm(16, 16, 16)
    for changes, problem, least, most in (
        ({"gbytes": 1050.0}, row, 1.5, 5),
        ({"gbytes": 1050.0}, square, 1, 1.1),
        ({"gflops": 30_500.0}, row, 1, 1.9),
        ({"gflops": 30_500.0}, square, 1.8, 2.1),
        ({"gflops": 30_500.0, "workgroups": 66}, square, 1.8, 2.1),  # half as many multiprocessors
        ({"launch_us": 40.0}, small, 5, 20),
    ):
        alike, gpu, kernels = device("NVIDIA A"), device("NVIDIA B"), list(field(problem, 132))
        probed(alike)
        probed(gpu, **changes)
        before, after = (adapted.model_of(g).best(kernels, problem)[0][1] for g in (alike, gpu))
        assert least * 0.999 < after / before < most, (changes, problem, after / before)


def test_a_model_fitted_on_the_adapter_is_not_rescaled():
    gpu = device("NVIDIA H200")
    probed(gpu, gbytes=1.0)
    assert adapted.model_of(gpu) == MODEL


def test_a_model_without_rates_is_not_rescaled():
    silent = dataclasses.replace(H200, rates=None)
    assert adapted.at_rates(silent, FITTED_AT) == silent


def test_the_origin_of_the_rates_is_stated(monkeypatch):
    monkeypatch.setattr(tables, "shipped", lambda: {"nvidia-h200": MODEL, "llvmpipe": MODEL})
    assert adapted.origin(device("NVIDIA H200")) == "fitted to times on this adapter, shipped with webmm"
    assert adapted.origin(device("llvmpipe (LLVM 20)", "cpu")) == "fitted to times on such a CPU, shipped with webmm"
    vendor = "in the shipped fit of another adapter of its vendor: 15,100 GFLOP/s f32"
    assert adapted.origin(device("NVIDIA A")).startswith(
        f"typical of a discrete GPU, since it was not probed, {vendor}"
    )
    published = f"published by its maker, since it was not probed, {vendor.replace('15,100', '66,900')}"
    assert adapted.origin(device("NVIDIA H100 80GB HBM3")).startswith(published)
    typical = "typical of an integrated GPU, since it was not probed: 8,300 GFLOP/s f32"
    assert adapted.origin(device("Apple M9", "integrated")).startswith(typical)
    assert adapted.origin(device("Microsoft Basic Render Driver", "cpu")).startswith("typical of a CPU: 150 GFLOP/s")


def test_the_origin_of_probed_rates_has_the_date(folder):
    probed(RADEON, gflops=1234.0)
    today = datetime.date.today().isoformat()
    assert rates.probed_on(RADEON) == today
    assert adapted.origin(RADEON).startswith(f"of a probe on {today}: 1,234 GFLOP/s f32")
    file = folder / rates.RATES_FILE
    for date in ("null", "7", '"yesterday"', '"\\u001b[31m"'):
        file.write_text(file.read_text().replace(f'"{rates.probed_on(RADEON) or "?"}"', date, 1))
        assert rates.probed_on(RADEON) == ""
        assert adapted.origin(RADEON).startswith("of a probe: 1,234 GFLOP/s f32")
        file.write_text(file.read_text().replace(f'"date": {date}', '"date": "2026-11-25"', 1))


def test_published_rates_count_until_there_is_a_probe():
    few = gemm(512, 768, 3072)
    known, unknown = device("NVIDIA H100 80GB HBM3"), device("NVIDIA X100 80GB HBM3")
    assert adapted.model_of(known).machine.multiprocessors == 132
    assert adapted.model_of(unknown).machine.multiprocessors == 24
    for gpu, divided in ((known, True), (unknown, False)):  # 24 tiles of 128² fill as many multiprocessors
        found = adapted.model_of(gpu)
        kernel, *_ = found.best(list(field(few, found.machine.multiprocessors)), few)[0]
        assert (getattr(kernel, "splits", 1) > 1) == divided
    probed(known, workgroups=66)
    assert adapted.model_of(known).machine.multiprocessors == 66
    assert adapted.typical(known) == adapted.typical(unknown)  # what `tune="off"` chooses by is the same everywhere


def test_published_rates_are_valid_and_found_by_the_names_of_adapters():
    assert len(published.PUBLISHED) > 50
    for name in published.PUBLISHED:
        found = published.published(name)
        assert found == Rates.of(dataclasses.asdict(found))
        assert 100 < found.gflops / found.workgroups < 900  # 64 lanes at 0.8 GHz to 128 at 3.5
        assert 5 < found.gflops / found.gbytes < 120
    for driver in (
        "Tesla T4",
        "NVIDIA Tesla T4",
        "GeForce RTX 2080",
        "AMD Radeon RX 7800 XT (RADV NAVI32)",
        "amd radeon rx 7800 xt",
        "Intel(R) Arc(TM) B580 Graphics",
    ):
        assert published.published(driver), driver
    assert not published.published("NVIDIA GeForce RTX 4090 Laptop GPU")  # another chip


def test_drivers_may_leave_the_vendor_out():
    assert tables.shipped_for(device("Tesla T4"))[1] == tables.shipped_for(device("NVIDIA L4"))[1] == "vendor"
    assert tables.shipped_for(device("AMD Radeon RX 7600"))[1] == "other"


def test_what_a_probe_can_add(folder):
    assert adapted.unprobed(RADEON)
    assert adapted.unprobed(device("NVIDIA A"))
    assert not adapted.unprobed(device("NVIDIA H200"))  # fitted
    assert not adapted.unprobed(device("a CPU", "cpu"))
    rates.store(RADEON, FITTED_AT)
    assert not adapted.unprobed(RADEON)


def test_shipped_models_state_their_rates():
    assert adapted.at_rates(H200, H200.rates).machine == H200.machine
    assert H200.rates.workgroups == H200.machine.multiprocessors


@pytest.mark.parametrize(
    "entry", [1, [], {}, {"gflops": 1}, dataclasses.asdict(FITTED_AT) | {"workgroups": "2"}, {"gflops": -1}]
)
def test_invalid_rates_are_ignored(folder, entry):
    (folder / "rates.json").write_text(
        json.dumps({"schema": rates.SCHEMA, "drivers": {rates.rates_key(RADEON): entry}})
    )
    assert rates.known(RADEON) is None


def test_infinite_rates_are_invalid():
    assert Rates.of(dataclasses.asdict(FITTED_AT) | {"gbytes": math.inf}) is None
    assert Rates.of(dataclasses.asdict(FITTED_AT)) == FITTED_AT


def test_persistent_takes_its_workgroups_from_the_probe():
    able = Capabilities("able", {}, frozenset())
    assert Persistent.on(able) == Persistent()
    assert Persistent.on(dataclasses.replace(able, workgroups=40)).workgroups == 120
    gpu = device()
    probed(gpu, workgroups=7)
    assert gpu.capabilities.workgroups == 7


# Models by engine


def test_a_model_of_the_same_engine_comes_first(monkeypatch):
    other = dataclasses.replace(MODEL, families={})
    for models in (
        {"nvidia-h200": MODEL, "nvidia-h200-dawn": other},
        {"nvidia-h200-dawn": other, "nvidia-h200": MODEL},
    ):
        monkeypatch.setattr(tables, "shipped", lambda models=models: models)
        assert adapted.model_of(device()) is MODEL
        assert adapted.model_of(device(engine="dawn")) is other
    monkeypatch.setattr(tables, "shipped", dict)
    assert adapted.model_of(device()).families == {}


# Corrections by tuning. The true time is the model's, times a factor per setting that the model does not know.


def truth(kernel, problem):
    bias = random.Random(model.shape(kernel)).gauss(0, 0.25)
    return MODEL.times([kernel], problem)[0] * math.exp(bias)


def record(kernel, problem, us, gpu):
    m, n, k, batch = problem.sizes
    return Record(
        "gemm", kernel.name, m, n, k, batch, "float32", "wgpu", gpu.info.name, "", gpu.info.driver, "0", kernel.config,
        problem.layout, median_us=us, gflops=1.0,
    )  # fmt: skip


def misjudged(problems, gpu):
    """Return how often the kernel predicted to be fastest takes more than 1.2 times as long as the fastest."""
    count = 0
    for problem in problems:
        kernels = list(field(problem, 132))[::3]
        times = [truth(kernel, problem) for kernel in kernels]
        taken = adapted.model_of(gpu).best(kernels, problem)[0][0]
        count += truth(taken, problem) > 1.2 * min(times)
    return count


def test_tuning_corrects_the_model():
    gpu, problems = device(), [p for p in drawn(120) if min(p.m, p.n) > 30]
    half = len(problems) // 2
    other = device("NVIDIA GeForce RTX 4090")
    before, elsewhere = misjudged(problems[half:], gpu), misjudged(problems[half:], other)
    measured = [
        record(kernel, problem, truth(kernel, problem), gpu)
        for problem in problems[:half]
        for kernel in list(field(problem, 132))[::3]
    ]
    assert adapted.correct(gpu, measured) > 20
    after = misjudged(problems[half:], gpu)
    assert before >= 10
    assert after <= before // 3, (before, after)
    assert misjudged(problems[half:], other) == elsewhere  # corrections are per adapter


@pytest.mark.parametrize("entry", [1, {"a": 1}, {"a": [1, 2, 3]}, {"a": ["1", 2]}, {"a": [0, 0]}, {"a": [1, 9]}])
def test_invalid_corrections_are_ignored(folder, entry):
    gpu = device()
    document = {"schema": adapted.SCHEMA, "drivers": {adapted._driver(gpu): entry}}
    (folder / "refit.json").write_text(json.dumps(document))
    assert adapted.model_of(gpu) == MODEL


def test_tuning_is_never_slower_than_the_prediction(monkeypatch):
    gpu, noise = device(), random.Random(5)

    class Noisy:
        """Times of the first round are off by up to 70 %, of the second by up to 50 %, those of the last are exact."""

        def measure(self, job, timeout):
            kernel, problem = tuner.configure(job.kernel, {n: str(v) for n, v in job.config.items()}), job.problem
            off = {0.02: 0.7, 0.08: 0.5, 0.2: 0.0}[job.warm_up]
            return record(kernel, problem, truth(kernel, problem) * (1 + noise.uniform(-off, off)), gpu)

    slower = faster = 0
    for problem in drawn(40):
        kernels = list(field(problem, 132))
        noise.shuffle(kernels)
        monkeypatch.setattr(tuner, "drawn", lambda *_, kernels=kernels: iter(kernels[:24]))
        untuned = MODEL.best(kernels, problem)[0][0]
        found = tuner.tune(gpu, problem, 60.0, worker=Noisy(), first=[untuned])
        (best,) = tuned.fastest(found)
        ratio = truth(tuned.kernel_of(best), problem) / truth(untuned, problem)
        slower += ratio > tuned.WORTH_SCRATCH
        faster += ratio < 0.98
    assert slower == 0
    assert faster > 10
