"""The tables of rates: fitted models, one file for each device and engine, as `bench/fit.py` writes them.

This module is in the translated subset.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webmm.choose.model import Family, Machine, Model
from webmm.choose.published import vendor_first
from webmm.engine.device import Device
from webmm.engine.rates import Rates
from webmm.lazy import Lazy

SHIPPED = Path(__file__).parents[1] / "tuned" / "models"
SCHEMA = "webmm.model/2"


@functools.cache
def shipped() -> Mapping[str, Model]:
    """Return the shipped models by the names of their files: the adapter's name, and the engine's if it is not wgpu.

    Each is read when it is first needed.
    """
    names = sorted(file.stem for file in SHIPPED.glob("*.json"))
    return Lazy(names, lambda name: from_json(SHIPPED.joinpath(f"{name}.json").read_text()))


def shipped_for(device: Device) -> tuple[Model | None, str]:
    """Return the shipped model nearest to the device, and whether it is for its "adapter", its "vendor", or an "other".

    Models for the device's engine come first.
    """
    words = vendor_first(device.info.name.replace("-", " "))
    engine = device.engine.name
    models = shipped()
    names = sorted(models, key=lambda name: engine_of_model(name) != engine)
    for near, length in (("adapter", len(words)), ("vendor", 1), ("other", 0)):
        for name in names:
            adapter = name.split("-")[:-1] if engine_of_model(name) != "wgpu" else name.split("-")
            if adapter[:length] == words[:length] and (near != "adapter" or len(adapter) == length):
                return models[name], near
    return None, "other"


def engine_of_model(name: str) -> str:
    """Return the engine of the shipped model called `name`."""
    return "dawn" if name.split("-")[-1] == "dawn" else "wgpu"


def from_json(text: str) -> Model:
    """Return the model in a document of SCHEMA; raises ValueError or KeyError if the document is invalid."""
    document = json.loads(text)
    if document["schema"] != SCHEMA:
        raise ValueError(f"this is not a {SCHEMA} document")
    return model_of(document)


def model_of(document: Mapping[str, Any]) -> Model:
    """Return the model in a parsed document; the page calls it, too."""
    families = {name: Family(**family) for name, family in document["families"].items()}
    return Model(Machine(**document["machine"]), families, rates=Rates.of(document.get("rates")))


def to_json(model: Model, **about: Any) -> str:
    """Return the model as a document of SCHEMA, with the additional entries `about`."""
    plain = {name: value for name, value in dataclasses.asdict(model).items() if name != "corrections"}
    families = []
    for name, family in plain.pop("families").items():
        weights = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in family.pop("weights").items())
        families.append(f'{json.dumps(name)}: {json.dumps(family)[:-1]}, "weights": {{\n  {weights}\n }}}}')
    rest = json.dumps({"schema": SCHEMA, **about, **plain})[:-1]
    return f'{rest},\n"families": {{\n{",".join(families)}\n}}}}\n'
