"""`webmm watch`: the first workgroups of a grid fill the tiles that the kernel's mapping gives them."""

from __future__ import annotations

import numpy as np
import pytest

from webmm import ConfigError, Device, ShaderError
from webmm.kernels import configure
from webmm.problems.gemm import gemm
from webmm.report import watch

PROBLEM = gemm(256, 128, 32)


def filled(device: Device, name: str, settings: dict[str, str]) -> list[list[tuple[int, int]]]:
    """Return the tiles of 64×64 that are new in each picture of a kernel, as (row, column); none may be in part."""
    before, found = np.zeros((4, 2), bool), []
    for (filling,) in watch.fillings(device, [configure(name, settings)], PROBLEM, 8):
        tiles = (~np.isnan(filling.c)).reshape(4, 64, 2, 64).swapaxes(1, 2).reshape(4, 2, -1)
        assert (tiles.all(axis=-1) == tiles.any(axis=-1)).all()
        now = tiles.all(axis=-1)
        assert now.sum() == filling.done
        assert not (before & ~now).any()
        found.append([(int(i), int(j)) for i, j in np.argwhere(now & ~before)])
        before = now
    return found


def test_tile_2d_goes_along_rows(device: Device) -> None:
    assert filled(device, "tile_2d", {}) == [[(i, j)] for i in range(4) for j in range(2)]


def test_blocked_goes_down_in_groups_of_rows(device: Device) -> None:
    found = filled(device, "blocked", {"bm": "64", "bn": "64", "group": "2"})
    assert found == [[(i + down, j)] for i in (0, 2) for j in range(2) for down in range(2)]


def test_kernels_share_the_pictures_and_reach_the_end_together(device: Device) -> None:
    kernels = [configure("naive", {}), configure("tile_2d", {})]
    found = list(watch.fillings(device, kernels, gemm(70, 50, 9), 5))
    assert [[filling.done for filling in each] for each in found] == [
        *([700, 1], [1400, 1], [2100, 2], [2800, 2]),
        [3500, 2],
    ]
    assert all(not np.isnan(filling.c).any() for filling in found[-1])
    assert found[0][0].caption == "naive: 700 of 3,500 workgroups"


@pytest.mark.parametrize(("name", "settings"), [("persistent", {}), ("split_k", {"splits": "4"}), ("gemv", {})])
def test_kernels_whose_workgroups_have_no_tile_of_their_own_are_refused(
    device: Device, name: str, settings: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be watched: its workgroups are not one for each tile of C"):
        next(watch.fillings(device, [configure(name, settings)], gemm(2048, 2048, 8), 4))


def test_a_wrong_product_is_an_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "fold", lambda count: (max(1, count // 2), 1, 1))
    monkeypatch.setattr(watch, "_workgroups", lambda kernel, problem: 8)
    with pytest.raises(ShaderError, match=r"tile_2d.*: the product is wrong on"):
        list(watch.fillings(device, [configure("tile_2d", {})], PROBLEM, 2))


def test_pictures_show_what_is_filled_and_what_is_new(device: Device) -> None:
    shown = watch.fillings(device, [configure("tile_2d", {})], PROBLEM, 8)
    images = [np.asarray(image) for image in watch.pictures(shown, PROBLEM)]
    assert len(images) == 8
    top = watch.GAP + watch.HEADING
    scale = watch.SIDE // 256

    def at(number: int, row: int, column: int) -> tuple[int, ...]:
        return tuple(int(x) for x in images[number][top + row * scale, watch.GAP + column * scale])

    assert at(0, 100, 0) == watch.EMPTY
    assert at(0, 0, 0) != watch.EMPTY
    assert sum(at(0, 0, 0)) > sum(at(1, 0, 0))  # no longer new
    assert at(1, 0, 0) == at(7, 0, 0)
