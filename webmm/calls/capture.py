"""Capture: a function of arrays whose dispatches are recorded once and replayed, without the work of its calls."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import update_wrapper
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from webmm.calls.planned import HOST, described
from webmm.engine.device import Array, Device
from webmm.engine.pool import Borrowed, Storage
from webmm.engine.recording import Recording
from webmm.engine.replays import Replay
from webmm.errors import MemoryLimitError, ProblemError

P = ParamSpec("P")
R = TypeVar("R")
MAX_REPLAYS = 16  # cached per function
ATTEMPTS = 3  # to record it: the first ones may compile, test or tune kernels


class Captured(Generic[P, R]):
    """A captured function, as `capture()` returns it; `free()`, or leaving a `with` block, releases its memory."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        self._kept: OrderedDict[Any, Replay] = OrderedDict()
        self._tried: Counter[Any] = Counter()  # how often recording was tried, by the same keys
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Replay the function, or call it."""
        key, arrays = described(self._name, args, kwargs)
        given = (*args, *kwargs.values())
        if not arrays or not all(type(x) is Array or isinstance(x, HOST) for x in given):
            raise ProblemError(
                f"{self._name}() is captured: it takes device arrays, at least one, and numbers or words beside them"
            )
        signature = tuple(key)
        device = arrays[0].device
        replay = self._kept.get(signature)
        if replay is not None:
            self._kept.move_to_end(signature)
            results: Any = replay.run(arrays)
            if results is not None:
                return cast(R, results if replay.several else results[0])
        elif not device.recordings.current() and device.profile is None:
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
        several = isinstance(result, tuple)
        results = result if several else (result,)
        if not all(isinstance(x, Array) for x in results):
            raise ProblemError(f"{self._name}() is captured: it returns an Array, or a tuple of them")
        device, what = arrays[0].device, recording.other or "making a result"
        if recording.complete and all(x._storage in recording.storages for x in results):
            for old in [key for key in self._kept if key[1] != signature[1]]:
                del self._kept[old]  # of an earlier generation: it is not found again
            try:
                self._kept[signature] = Replay(device, device.launches, recording, arrays, results, several)
            except MemoryLimitError:
                what = "using memory that is not left for arrays of its own"
            else:
                if len(self._kept) > MAX_REPLAYS:
                    self._kept.popitem(last=False)
                return
        self._tried[signature] += 1
        if self._tried[signature] >= ATTEMPTS:
            raise ProblemError(
                f"{self._name}() cannot be captured: each call does more than dispatches, last by {what}; transfers "
                "from and to the host belong outside of it"
            )

    def free(self) -> None:
        """Release the arrays that are kept for replays; the next call records again."""
        self._kept.clear()

    def __enter__(self) -> Captured[P, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


def capture(function: Callable[P, R]) -> Captured[P, R]:
    """Return `function` with its dispatches recorded by the first calls, and replayed by later ones.

    Replaying a sequence of calls leaves out Python's part of each, 20 to 90 µs: that is most of the time of a small
    model. The function takes arrays of one device and returns one, or a tuple of them. What else it takes – numbers,
    words, None – is part of what is recorded, as are the shapes, strides and dtypes of the arrays: for other ones it is
    recorded again.

    - Arrays that it uses without being given them, such as weights, are the same in each replay; they may be written
      to in between, and by the function.
    - Everything else that it does in Python happens when it is recorded, not when it is replayed: it must not depend
      on values that change, count calls, print, or copy from or to the host.
    - `KVCache.append()` takes the place of new tokens from a device array then: `at=`.
    - Arrays that it makes and does not return are kept until `free()`, or until the captured function is deleted.

    While `webmm.profile()` is active, or if an array was freed, it is called as usual. Raises ProblemError for a
    function that takes no array or returns anything but arrays, and for one whose recording does more than dispatches
    each time, with what it does; otherwise what the function raises.

    Example: ``step = webmm.capture(lambda x: webmm.softmax(x @ w)); y = step(x)``

    Source: the graph capture of CUDA and ONNX Runtime, and tinygrad's `TinyJit`, which work like this.
    """
    return Captured(function)
