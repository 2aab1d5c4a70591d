"""What notebooks show: MIME bundles of arrays, profiles and benchmarks, whose HTML is well formed and escaped."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import webmm


def bundle(x):
    """Return plain text, and the parsed HTML."""
    found = x._repr_mimebundle_(include=None, exclude=None)
    assert set(found) == {"text/plain", "text/html"}
    return found["text/plain"], ElementTree.fromstring(f"<body>{found['text/html']}</body>")


def cells(html):
    return [[cell.text for cell in row] for row in html.findall(".//tr")]


def rects(html):
    return [x for x in html.iter() if x.tag.endswith("rect")]


def test_a_matrix_is_a_table_of_its_edges_and_a_heat_map(device):
    host = np.arange(100 * 12, dtype=np.float32).reshape(100, 12)
    host[0, 0] = np.nan
    x = device.array(host)
    text, html = bundle(x)
    assert text == repr(x)
    rows = cells(html)
    assert [len(row) for row in rows] == [9] * 9
    assert rows[0][:5] == ["nan", "1", "2", "3", "…"]
    assert rows[4] == ["…"] * 9
    assert rows[-1][-1] == "1199"
    assert html.find(".//caption").text.startswith("100 × 12 float32 on llvmpipe".partition(" on ")[0])
    colours = [x.get("fill") for x in rects(html)]
    assert len(colours) == 32 * 12
    assert colours[0] == "#d33"
    light = [int(re.search(r"(\d+)%\)", colour)[1]) for colour in colours[1:]]
    assert light == sorted(light, reverse=True)
    assert (light[0], light[-1]) == (95, 20)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 3)])
def test_other_arrays(device, shape):
    x = device.array(np.ones(shape, np.int32))
    text, html = bundle(x)
    assert text == repr(x)
    assert cells(html) == ([["1"] * 3] if shape == (3,) else [[str(x)]])
    x.free()
    assert x._repr_mimebundle_() == {"text/plain": repr(x)}


def test_a_profile_is_a_table_and_a_time_line(device):
    x = device.array(np.ones((8, 8), np.float32))
    with webmm.profile(device) as profile:
        (x @ x).numpy()
    text, html = bundle(profile)
    rows = cells(html)
    assert rows[0][:3] == ["what", "name", "clock"]
    assert len(rows) > 3
    assert all(len(row) == 9 for row in rows)
    assert "GOP/s" in text
    assert len(rects(html)) == len(profile.events)


def test_a_benchmark_is_a_table(device):
    x = device.array(np.ones((8, 8), np.float32))
    found = webmm.benchmark(lambda: x @ x, against=lambda: x @ x @ x)
    text, html = bundle(found)
    assert text == str(found)
    rows = cells(html)
    assert rows[1][0] == "<lambda>"  # escaped
    assert len(rows) == 3
    assert rows[1][-1].startswith(f"{found.ratio.median:.3g} (")
