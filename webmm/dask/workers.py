"""Dask workers with one adapter each: a cluster on this machine, and a plugin for any other cluster."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed import Client, Nanny, Scheduler, SpecCluster, WorkerPlugin, get_client
from filelock import FileLock, Timeout

from webmm.engine.devices import chosen_adapters
from webmm.errors import ConfigError, ProblemError

RESOURCE = "webmm"  # Dask resource of a worker with a device, so that it runs one task at a time
ADAPTER = "WEBMM_ADAPTER"
ADVICE = "start one with webmm.dask.cluster(), or call client.register_plugin(webmm.dask.Adapters())"


def cluster(adapters: Sequence[str | int] | None = None, *, workers: int | None = None, **options: Any) -> SpecCluster:
    """Start a cluster of worker processes on this machine, each with its own adapter, and return it.

    `adapters` are names as in `Device()`, one per worker; by default all GPUs that match the setting `adapter`, or the
    CPU adapters if there is no GPU. `workers` is the number of workers; several may share a CPU adapter. Each worker
    has `WEBMM_ADAPTER` set and the resource webmm=1, so that tasks do not share a device. `options` are passed to the
    scheduler, such as `dashboard_address`. Raises ConfigError for more workers than adapters, NoAdapterError if there
    is no adapter.
    """
    found = chosen_adapters()
    chosen = [str(each) for each in adapters] if adapters is not None else [str(info.index) for info in found]
    if workers is not None and workers > len(chosen) and adapters is None and found[0].kind == "cpu":
        chosen = [chosen[i % len(chosen)] for i in range(workers)]
    if workers is not None and not 0 < workers <= len(chosen):
        raise ConfigError(f"{workers} workers for {len(chosen)} adapters; each worker needs its own")
    chosen = chosen[:workers]
    memory = 0.9 / len(chosen)  # share of the machine's memory
    specification = {
        i: {
            "cls": Nanny,
            "options": {
                **{"nthreads": 2, "resources": {RESOURCE: 1}, "memory_limit": memory, "dashboard": False},
                "silence_logs": logging.WARNING,
                "env": {ADAPTER: which},
            },
        }
        for i, which in enumerate(chosen)
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": ":0", **options}}
    return SpecCluster(workers=specification, scheduler=scheduler, silence_logs=logging.WARNING)


class Adapters(WorkerPlugin):
    """Worker plugin that gives each worker of a host a different adapter, and the resource webmm=1.

    Raises ConfigError on a worker if no adapter is left: a host must not have more workers than adapters.
    """

    name = "webmm-adapters"

    async def setup(self, worker: Any) -> None:
        """Reserve the first free adapter until the process exits."""
        found = [str(info.index) for info in chosen_adapters()]
        for which in found:
            lock = FileLock(Path(tempfile.gettempdir()) / f"webmm-adapter-{os.getuid()}-{which}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            self._lock = lock  # the system releases it when the process exits
            os.environ[ADAPTER] = which
            await worker.set_resources(**{RESOURCE: 1})
            return
        raise ConfigError(f"all {len(found)} adapters of {worker.address} are in use by other workers; start fewer")

    def teardown(self, worker: Any) -> None:
        """Release the adapter."""
        del worker
        if hasattr(self, "_lock"):
            self._lock.release()


def count(client: Client | None = None) -> int | None:
    """Return how many workers of a client (by default the current one) have a device; None without a client.

    Raises ProblemError if no worker has a device.
    """
    try:
        client = client or get_client()
    except ValueError:
        return None
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    able = sum(1 for worker in workers if worker["resources"].get(RESOURCE))
    if not able:
        raise ProblemError(f"none of the cluster's {len(workers)} workers has a device for webmm: {ADVICE}")
    return able
