"""Mappings whose values are made when they are first needed."""

import pytest

from webmm.lazy import Lazy


def test_values_are_made_once_when_they_are_needed():
    made = []
    lazy = Lazy("abc", lambda key: made.append(key) or [key])
    assert list(lazy) == ["a", "b", "c"]
    assert "b" in lazy
    assert "d" not in lazy
    assert len(lazy) == 3
    assert made == []
    assert lazy["b"] is lazy["b"] is lazy.get("b")
    assert made == ["b"]
    assert lazy.get("d", 0) == 0
    with pytest.raises(KeyError, match="'d'"):
        lazy["d"]
    lazy["d"] = []
    assert list(lazy.items()) == [("a", ["a"]), ("b", ["b"]), ("c", ["c"]), ("d", [])]
    del lazy["d"]
    assert list(lazy) == ["a", "b", "c"]
    assert made == ["b", "a", "c"]
