"""A worker for each adapter: a cluster on this machine, and a plugin for any other."""

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

RESOURCE = "webmm"  # of a worker with a device: one task at a time
ADAPTER = "WEBMM_ADAPTER"
ADVICE = "start one with webmm.dask.cluster(), or call client.register_plugin(webmm.dask.Adapters())"


def cluster(adapters: Sequence[str | int] | None = None, *, workers: int | None = None, **options: Any) -> SpecCluster:
    """Start a cluster of processes on this machine, each with an adapter of its own, and return it.

    `adapters` are what `Device()` takes, one for each worker; by default all that the setting `adapter` leaves, GPUs
    before the CPU. `workers` is how many of them; a CPU's adapter serves several. Each worker has `WEBMM_ADAPTER` set
    and the resource webmm=1, so that no two tasks meet on a device. `options` are the scheduler's, such as
    `dashboard_address`. Raises ConfigError for more workers than adapters, NoAdapterError where there is none.
    """
    found = chosen_adapters()
    chosen = [str(each) for each in adapters] if adapters is not None else [str(info.index) for info in found]
    if workers is not None and workers > len(chosen) and adapters is None and found[0].kind == "cpu":
        chosen = [chosen[i % len(chosen)] for i in range(workers)]
    if workers is not None and not 0 < workers <= len(chosen):
        raise ConfigError(f"{workers} workers for {len(chosen)} adapters; each worker has one of its own")
    chosen = chosen[:workers]
    memory = 0.9 / len(chosen)  # of the machine's
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
    """Gives each worker of a cluster an adapter of its host that no other worker there has, and the resource webmm=1.

    Raises ConfigError on a worker for which none is left: a host needs no more workers than it has adapters.
    """

    name = "webmm-adapters"

    async def setup(self, worker: Any) -> None:
        """Take the first adapter that is free, for as long as the process lives."""
        found = [str(info.index) for info in chosen_adapters()]
        for which in found:
            lock = FileLock(Path(tempfile.gettempdir()) / f"webmm-adapter-{os.getuid()}-{which}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            self._lock = lock  # the system lets go of it when the process ends
            os.environ[ADAPTER] = which
            await worker.set_resources(**{RESOURCE: 1})
            return
        raise ConfigError(f"all {len(found)} adapters of {worker.address} are taken by other workers; start fewer")

    def teardown(self, worker: Any) -> None:
        """Leave the adapter to others."""
        del worker
        if hasattr(self, "_lock"):
            self._lock.release()


def count(client: Client | None = None) -> int | None:
    """Return how many workers of a client, by default the current one, have a device; None without a client.

    Raises ProblemError where none has one.
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
