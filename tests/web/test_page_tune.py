"""The tune panel: tuning, records from files, links and earlier visits; what it refuses."""

from __future__ import annotations

import base64
import json
import zlib

from tests.web.page_steps import saved, show, upload, wait_text
from webmm.measure import records


def test_tune_export_import_and_compare(page) -> None:
    show(page, "tune")
    for name in ("m", "n", "k"):
        page.fill(f"#tune-{name}", "64")
    page.fill("#tune-budget", "3")
    page.click("#tune-run")
    wait_text(page, "#tune-message", "Best: ")
    text = saved(page, "#tune-save").decode()
    found = records.from_json(text)
    assert any(record.status == "ok" for record in found)
    assert {record.status for record in found} <= {"ok", "skipped", "unsupported", "timeout"}
    assert all(record.config is not None and record.m == 64 for record in found)

    elsewhere = json.loads(text)
    for row in elsewhere["records"]:
        row.update(adapter="Another GPU", engine="wgpu-py", gflops=row["gflops"] and row["gflops"] * 10)
    upload(page, "#tune-import", "native.json", json.dumps(elsewhere).encode())
    wait_text(page, "#tune-message", " of Another GPU")
    table = page.inner_text("#compare table")
    assert "Another GPU, wgpu-py" in table
    assert "10 ×" in table
    assert "Only one run so far" not in page.inner_text("#compare")


def test_runs_are_compared_with_a_run_on_the_same_problems(page) -> None:
    show(page, "tune")
    found = page.evaluate(
        """() => {
          const { app, device } = webmm;
          const run = (name, n, gflops) => {
            const p = { m: n, n, k: n, dtype: "float32" };
            const figures = { gflops, median_us: 1, best_us: 1 };
            app.addRun(name, [device.record(device.stage("naive"), p, figures)]);
            const row = [...document.querySelectorAll("#compare tbody tr > *")].map((each) => each.textContent);
            return [document.querySelector("#compare-left")?.value, ...row];
          };
          return [run("small", 64, 1), run("large", 128, 3), run("small again", 64, 2)];
        }"""
    )
    assert found[1] == ["small", "naive64³ and 128³ float32, GFLOP/s", "1", "3", "3 ×"]
    assert found[2] == ["small", "naive64³ float32, GFLOP/s", "1", "2", "2 ×"]


VALID = {
    **dict.fromkeys(("op", "kernel", "dtype", "adapter", "engine", "version"), "some"),
    **dict.fromkeys(("m", "n", "k"), 8),
    **{"status": "ok", "median_us": 1.0, "gflops": 2},
}
UNPRINTABLE = {"toString": 1}  # JavaScript cannot convert it to a string
INVALID = [
    ({"m": 0}, "no valid m"),
    ({"k": 1e300}, "no valid k"),
    ({"batch": 0}, "no valid batch"),
    ({"op": UNPRINTABLE}, "no valid op"),
    ({"status": UNPRINTABLE}, "no valid status"),
    ({"status": "toString"}, "no valid status"),
    ({"reason": UNPRINTABLE}, "no valid reason"),
    ({"backend": None}, "no valid backend"),
    ({"gflops": "constructor"}, "no valid gflops"),
    ({"gflops": -1}, "no valid gflops"),
    ({"gflops": None}, "is ok, but has no positive median_us and gflops"),
    ({"adapter": "two\nlines"}, "no valid adapter"),
    ({"config": [8]}, "no valid config"),
    ({"config": {"bm": UNPRINTABLE}}, "no valid config"),
    (ABSURD := {"op": "gemm", "kernel": "tile_2d", "config": {"tm": 1024}}, "tm must be one of 2, 4, 8, not 1024"),
]


def as_document(*rows: object) -> str:
    return json.dumps({"schema": records.SCHEMA, "records": rows})


def test_tune_refuses_invalid_records(page) -> None:
    show(page, "tune")
    for changes, words in INVALID:
        upload(page, "#tune-import", "bad.json", as_document(VALID, {**VALID, **changes}).encode())
        wait_text(page, "#tune-message", "record 2 ")
        assert words in page.inner_text("#tune-message")
    upload(page, "#tune-import", "long.json", as_document(*[VALID] * 10_001).encode())
    wait_text(page, "#tune-message", "at most 10000")
    upload(page, "#tune-import", "bad.json", json.dumps({"schema": UNPRINTABLE}).encode())
    wait_text(page, "#tune-message", "not a webmm.records/1 document")
    for data, words in [
        (b"{", "not a JSON file"),
        (b'{"schema": "other/1"}', "not a webmm.records/1"),
        (b'{"schema": "webmm.records/1", "records": [{}]}', "record 1 has no op"),
        (b'{"schema": "webmm.records/1", "records": []}', "contains no records"),
    ]:
        upload(page, "#tune-import", "bad.json", data)
        wait_text(page, "#tune-message", words)
    page.fill("#tune-m", "0")
    page.click("#tune-run")
    wait_text(page, "#tune-message", "whole numbers")


def test_tune_takes_whole_numbers_only(page) -> None:
    show(page, "tune")
    for field in ("m", "n", "k", "budget"):
        good = page.input_value(f"#tune-{field}")
        for bad in ("0", "-1", "1.5", "", "1e300"):
            page.fill(f"#tune-{field}", bad)
            page.click("#tune-run")
            wait_text(page, "#tune-message", "whole numbers of at least 1")
        page.fill(f"#tune-{field}", good)


def test_tune_accepts_names_of_object_members_and_elements(page) -> None:
    show(page, "tune")
    named = {**VALID, "op": "constructor", "kernel": "<img src=x>", "config": {"toString": 1, "bm": 8}}
    upload(page, "#tune-import", "named.json", as_document(named).encode())
    wait_text(page, "#tune-message", "1 result of some")
    table = page.inner_text("#compare table")
    assert "GFLOP/s" in table
    assert "native code" not in table
    assert "<img src=x>" in table
    assert "Only one run so far" in page.inner_text("#compare")
    assert page.locator("#compare thead th").count() == 2


STORED = ("[null]", as_document(None), as_document({**VALID, "config": [8]}), as_document({**VALID, **ABSURD}), "{")


def test_invalid_stored_data_is_discarded(page) -> None:
    for stored in STORED:
        page.evaluate(
            "(text) => { localStorage.setItem('webmm.tuned', text); localStorage.setItem('webmm.theme', 'toString'); }",
            stored,
        )
        page.reload()
        page.wait_for_selector("body[data-ready]")
        assert page.is_hidden("#banner"), stored
        assert page.evaluate("webmm.app.tuned()") == [], stored
        assert page.evaluate("document.documentElement.dataset.theme ?? null") is None, stored


def test_tuned_records_are_used_on_later_visits(page) -> None:
    chosen = "webmm.device.choose({ m: 64, n: 64, k: 64, dtype: 'float32' }).label"
    before = page.evaluate(chosen)
    page.evaluate(
        "() => { const { app, device } = webmm; const p = { m: 64, n: 64, k: 64, dtype: 'float32' };"
        " const figures = { median_us: 500, gflops: 1, max_error: Infinity };"
        " app.keepTuned([device.record(device.stage('naive'), p, figures)]); }"
    )
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert before != page.evaluate(chosen) == "naive"
    assert page.evaluate("webmm.app.tuned()[0].max_error") == float("inf")


def test_a_link_is_unpacked_to_8_mib_at_most(open_page) -> None:
    count = """
      const Inflate = DecompressionStream;
      globalThis.unpacked = 0;
      globalThis.DecompressionStream = class extends Inflate {
        get readable() {
          return super.readable.pipeThrough(new TransformStream({
            transform(chunk, out) { unpacked += chunk.length; out.enqueue(chunk); },
          }));
        }
      };"""
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(bytes(150_000_000)) + packer.flush()
    page = open_page(f"#run={base64.urlsafe_b64encode(packed).decode()}", script=count)
    assert "unpacks to more than 8 MiB" in page.inner_text("#banner")
    assert 8 * 2**20 < page.evaluate("unpacked") < 12 * 2**20


def test_a_link_carries_a_run(page, open_page) -> None:
    record = page.evaluate(
        "async () => { const { toFragment } = await import('./records.js');"
        " const kernel = webmm.device.stage('naive');"
        " const p = { m: 8, n: 8, k: 8, dtype: 'float32' };"
        " return toFragment([webmm.device.record(kernel, p, { gflops: 1.5, median_us: 1, best_us: 1 })]); }"
    )
    other = open_page(f"#run={record}")
    other.wait_for_selector("#tune:visible")
    assert "1.5" in other.inner_text("#compare table")
    broken = open_page("#run=nonsense!")
    assert "damaged" in broken.inner_text("#banner")
