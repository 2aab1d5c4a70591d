"""webmm with Dask: products of Dask arrays, a cluster with a worker for each GPU, and products of files.

Needs the extra `webmm[dask]`. Importing this package registers `webmm.Array` as a chunk type of Dask arrays.
"""

from __future__ import annotations

from webmm.errors import ConfigError

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ConfigError("webmm.dask needs Dask, which is not installed: pip install 'webmm[dask]'") from error

from webmm.dask import registered
from webmm.dask.files import apply_to_files, multiply_files
from webmm.dask.products import matmul
from webmm.dask.workers import Adapters, cluster

__all__ = ["Adapters", "apply_to_files", "cluster", "matmul", "multiply_files"]

registered.register()
