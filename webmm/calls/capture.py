"""Capture: a function of arrays whose dispatches are recorded once and replayed, without the work of its calls."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import update_wrapper
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from webmm.calls.planned import HOST, described
from webmm.engine.device import Array, Device
from webmm.engine.pool import Borrowed, Storage
from webmm.engine.recording import Recording
from webmm.engine.replays import Replay, observed
from webmm.errors import MemoryLimitError, ProblemError

P = ParamSpec("P")
R = TypeVar("R")
MAX_REPLAYS = 16  # cached per function
ATTEMPTS = 3  # to record a signature: the first ones may compile, test or tune kernels
MOST_ATTEMPTS = ATTEMPTS * MAX_REPLAYS  # of all that differ in what is no array, since a recording was kept


class Captured(Generic[P, R]):
    """A captured function, as `capture()` returns it; `free()`, or leaving a `with` block, releases its memory."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        self._kept: OrderedDict[Any, Replay] = OrderedDict()
        self._failed: Counter[Any] = Counter()  # recordings in vain, by signatures, and by those of the arrays alone
        self._lock = threading.Lock()  # of these two
        update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Replay the function, or call it."""
        key, arrays = described(self._name, args, kwargs)
        if not arrays or not all(type(x) is Array or _is_host(x) for x in (*args, *kwargs.values())):
            raise ProblemError(
                f"{self._name}() is captured: it takes device arrays, at least one, and numbers or words beside them"
            )
        device = arrays[0].device
        signature = (*key, id(device))
        with self._lock:
            if (replay := self._kept.get(signature)) is not None:
                self._kept.move_to_end(signature)
        if replay is not None:
            results: Any = replay.run(arrays)
            if results is not None:
                return cast(R, results if replay.several else results[0])
        elif not observed(device):
            return cast(R, self._recorded(signature, device, args, kwargs))
        return self._function(*args, **kwargs)

    def _recorded(self, signature: Any, device: Device, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function and record it.

        It is given other arrays over the same buffers: so those that it uses otherwise, too, are told apart.
        """
        lent: dict[Storage[Device], Borrowed[Device]] = {}
        arrays: list[Array] = []  # that the function is given
        own: list[Array] = []  # those that they stand for

        def borrowed(x: Any) -> Any:
            if type(x) is not Array:
                return x
            storage = lent.setdefault(x._storage, Borrowed(x._storage))
            own.append(x)
            arrays.append(Array(storage, x.shape, x.element, x.strides, x.offset))
            return arrays[-1]

        def returned(x: Any) -> Any:
            if type(x) is not Array or not isinstance(x._storage, Borrowed):
                return x
            whole = Array(x._storage.lender, x.shape, x.element, x.strides, x.offset)
            return next((mine for mine, array in zip(own, arrays, strict=True) if x is array), whole)

        positional, by_word = [borrowed(x) for x in args], {word: borrowed(x) for word, x in kwargs.items()}
        with device.recordings.begin(arrays, captured=True) as recording:
            result: Any = self._function(*positional, **by_word)
        self._keep(signature, recording, arrays, result)
        return tuple(map(returned, result)) if isinstance(result, tuple) else returned(result)

    @property
    def _name(self) -> str:
        return str(getattr(self, "__name__", "the function"))

    def _keep(self, signature: Any, recording: Recording, arrays: list[Array], result: Any) -> None:
        """Keep what was recorded; raises ProblemError if it cannot be replayed, after some attempts."""
        several = type(result) is tuple
        results = result if several else (result,)
        if not all(isinstance(x, Array) for x in results):
            raise ProblemError(f"{self._name}() is captured: it returns an Array, or a tuple of them")
        device, shapes = arrays[0].device, tuple(x.signature for x in arrays)
        for x in results:
            if x._storage not in recording.storages:
                recording.close_over(x._storage)
        what = recording.other
        if recording.complete:
            try:
                made = Replay(device, device.launches, recording, arrays, results, several)
            except MemoryLimitError:
                what = "using memory that is not left for arrays of its own"
            else:
                self._add(signature, made)
                with self._lock:
                    for each in (signature, shapes):
                        self._failed.pop(each, None)
                return
        with self._lock:
            self._failed.update((signature, shapes))
            often = self._failed[signature] >= ATTEMPTS or self._failed[shapes] >= MOST_ATTEMPTS
        if often:
            raise ProblemError(
                f"{self._name}() cannot be captured: each call does more than dispatches, last by {what}; transfers "
                "from and to the host belong outside of it"
            )

    def _add(self, signature: Any, replay: Replay) -> None:
        """Keep a replay, and drop those of closed devices and of earlier generations, which are not found again."""
        with self._lock:
            for key in [key for key, kept in self._kept.items() if key[1] != signature[1] or kept.lost]:
                del self._kept[key]
            self._kept[signature] = replay
            if len(self._kept) > MAX_REPLAYS:
                self._kept.popitem(last=False)

    def free(self) -> None:
        """Release the arrays that are kept for replays; the next call records again."""
        with self._lock:
            self._kept.clear()
            self._failed.clear()

    def __enter__(self) -> Captured[P, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


def _is_host(x: Any) -> bool:
    """Tell whether an argument is a host value, whose bits are part of the key."""
    return all(map(_is_host, x)) if type(x) is tuple else isinstance(x, HOST) and not isinstance(x, tuple)


def capture(function: Callable[P, R]) -> Captured[P, R]:
    """Return `function` with its dispatches recorded by the first calls, and replayed by later ones.

    Replaying a sequence of calls leaves out Python's part of each, 20 to 90 µs: that is most of the time of a small
    model. The function takes arrays of one device and returns one, or a tuple of them. What else it takes – numbers,
    words, None – is part of what is recorded, as are the shapes, strides and dtypes of the arrays: for other ones it is
    recorded again.

    - Arrays that it uses without being given them, such as weights, are the same in each replay; they may be written
      to in between, and by the function.
    - Everything else that it does in Python, with other devices or in other threads, happens when it is recorded, not
      when it is replayed: it must not depend on values that change, count calls, print, free or keep arrays, or copy
      from or to the host, as products of no terms and arrays with negative strides do.
    - `KVCache.append()` takes the place of new tokens from a device array then: `at=`.
    - Arrays that it makes and does not return are kept for replays, until `free()` or until the captured function is
      deleted; of more than 16 signatures, the least recently used are recorded anew.

    It is a function, not a method; a lambda or `functools.partial` binds an object. While `webmm.profile()` or the log
    topic `profile` is active, or if an array was freed, it is called as usual. Raises ProblemError for a function that
    takes no array, or returns anything but arrays or a plain tuple of them, and for one that could not be recorded
    three times with these arguments, or 48 times with arrays of these shapes, since it last was, with the reason;
    otherwise what the function raises.

    Example: ``step = webmm.capture(lambda x: webmm.softmax(x @ w)); y = step(x)``

    Source: the graph capture of CUDA and ONNX Runtime, and tinygrad's `TinyJit`, which work like this.
    """
    if not callable(function):
        raise ProblemError(f"capture() takes a function of arrays, not {type(function).__name__}")
    return Captured(function)
