"""What others may hand to each entrance, be it by mistake or in malice, with words of the answer.

`test_bad_input.py` tries every row, and knows every command, option that takes a value, and setting: one without a row
is noticed there.
"""

from __future__ import annotations

import json

LONG = "9" * 5000  # more digits than Python reads
RED = "\x1b[31m"
NESTED = "[" * 100_000
SCHEMA = '{"schema": "webmm.records/1", "records": '

ENGINES = {"--engine cuda": "choose from wgpu, dawn, auto"}

PLUGINS = {"--plugin missing.py": "a plugin is a Python file", "--plugin fifo": "a plugin is a Python file"}

HOW = "--workgroup 16,16 --grid n/16,m/16"
TEXT = f"tiles.wgsl {HOW}"
# Texts from elsewhere, and what is said of them.
TEXTS = {
    f"missing.wgsl {HOW}": "No such file",
    f"fifo {HOW}": "it is a pipe or a device",
    f"a.npy {HOW}": "cannot read a.npy",
    TEXT: "binding 0",
    f"{TEXT} --uniform x": "names m, n and k",
    f"{TEXT} --uniform m,n,k --constants M": "has no constant M",
    f"{TEXT} --uniform m,n,k --bindings a,b": "names a, b and c",
    f"{TEXT} --uniform m,n,k --entry nope": "no compute entry point nope()",
    "tiles.wgsl --workgroup ² --grid 1 --uniform m,n,k": "a workgroup is one to three numbers",
    f"tiles.wgsl --workgroup 16,{LONG} --grid 1 --uniform m,n,k": "a workgroup is one to three numbers",
    "tiles.wgsl --workgroup 16,16 --grid m**n --uniform m,n,k": "a grid is one to three counts",
    "tiles.wgsl --workgroup 16,16 --grid __import__('os') --uniform m,n,k": "a grid is one to three counts",
    "tiles.wgsl --workgroup 16,16 --grid m/(n-n) --uniform m,n,k": "divides by zero",
}

# By command: arguments → words. A fifo that nobody writes to is there, files are made by `files()`, and a.npy is sound.
ARGUMENTS: dict[str, dict[str, str]] = {
    "selftest": {"--adapter no-such-adapter": "there is 0:", "--adapter ²": "no adapter matches", **ENGINES},
    "config": {"x": "Usage", "--write missing/webmm.toml": "cannot write", "--write .": "--force overwrites it"},
    "info": {
        "--adapter ²": "there is 0:",
        f"--adapter {LONG}": "there is 0:",
        f"--adapter {RED}": r"'\x1b[31m'",
        f"--engine {RED}": r"unknown engine '\x1b[31m'",
        **ENGINES,
    },
    "bench": {
        **PLUGINS,
        "--op nope": "choose from gemm",
        "--op reduce:sum:max": "unknown variant 'sum:max'",
        "--op reduce --sizes 8x8@²": "with an axis",
        "--op reduce:mean --dtype int32": "mean is of floats, not of int32",
        "--op reduce:prod --dtype uint8": "dtype uint8 is not supported by reductions",
        "--op reduce --sizes 8x8@2": "with an axis",
        "--op reduce --sizes 1000000000x1000000000": "elements of one buffer",
        "--op quantized --sizes 1000000": "one buffer",
        "--sizes 0": "at least 1",
        "--sizes -5": "at least 1",
        "--sizes ²": "at least 1",
        f"--sizes {LONG}": "at least 1",
        "--sizes 2x3": "MxNxK",
        "--sizes big": "MxNxK",
        "--sizes 1000000": "elements of one buffer",
        "--sizes 1x1x99999999999": "elements of one buffer",
        "--kernels nope": "choose from naive",
        "--kernels blocked:bm=65": "multiple of tm",
        "--kernels blocked:bm": "NAME=VALUE",
        "--kernels blocked:zz=1": "its tunables",
        f"--kernels blocked:bm={LONG}": "takes an integer",
        "--kernels shared:tile=33 --sizes 8": "invocations per workgroup",
        "--kernels blocked:bm=1024:bn=1024:tm=8:tn=128 --sizes 8": "workgroup",
        "--dtype object": "float32",
        "--dtype int64": "cast to",
        "--dtype ,": "is not a dtype",
        "--precision low": "is not one of 'highest', 'high'",
        "--layout xy": "nn, nt, tn, tt",
        "--clock sun": "is not one of 'timestamp', 'wall'",
        "--sizes 8@2@2": "a batch: 64x64x64@8",
        "--sizes 8@0": "a batch: 64x64x64@8",
        "--ablate nope": "choose from naive",
        "--ablate naive,shared": "one kernel",
        "--ablate naive --kernels shared": "leave --kernels",
        **{f"--sizes 8 --against {file}": "cannot read" for file in ("missing", ".", "fifo", "/dev/zero")},
        "--sizes 8 --against a.npy": "cannot read",
        "--op reduce --precision high": "is of products of floats",
        "--adapter no-such-adapter": "there is 0:",
        **{f"--sizes 8 {each}": words for each, words in ENGINES.items()},
        "--json missing/r.json --sizes 8": "no folder",
        "--csv missing/r.csv --sizes 8": "no folder",
        "--plot r.pdf --sizes 8": ".png or .svg",
        "--plot missing/r.png --sizes 8": "no folder",
        "--profile=t.txt": "a trace is .json",
        "--budget 0": "budget",
        "--budget nan": "no number of seconds",
        "--budget inf": "budget",
        "--budget 1e308": "budget",
    },
    "shader": {
        **{f"naive {each}": words for each, words in PLUGINS.items()},
        "nope": "choose from naive",
        "blocked --op nope": "choose from gemm",
        "blocked --set bm=x": "takes an integer",
        "blocked --set bm=99999999999999999999999": "multiple of tm",
        "pipelined --set prefetch=disk": "registers, workgroup",
        "naive --dialect glsl": "naga, tint",
        "naive --layout xy": "nn, nt, tn, tt",
        "naive --to glsl": "'msl', 'hlsl', 'spirv'",
        "naive --to msl --dtype float64": "writes no MSL",
        "naive --to msl --dialect tint": "leave --dialect out",
        "naive --size ²": "at least 1",
        f"naive --size {LONG}": "at least 1",
        "naive --dtype <f4,<f4": "cast to",
        "naive --dtype ,": "is not a dtype",
    },
    "debug": {
        "nope 1 1 1": "choose from naive",
        **{f"naive 3 3 3 {each}": words for each, words in PLUGINS.items()},
        f"naive {LONG} 1 1": "with numbers of at least 1",
        "serial 3 3 --op nope": "choose from gemm",
        "serial 3 3 --op reduce --at 3": "the result is 3x1: it has no element (3, 0)",
        "naive 3 3 3 --at 3": "ROW,COL",
        "naive 3 3 3 --at 3,0": "C is 3x3: it has no element (3, 0)",
        "naive 3 3 3 --at ²,1": "ROW,COL",
        f"naive 3 3 3 --at {LONG},1": "ROW,COL",
        "naive 3 3 3 --steps 2:9": "no steps 2:9 within 0:3",
        "naive 3 3 3 --steps two": "A:B",
        "naive 3 3 3 --steps ²:3": "A:B",
        "naive 3 3 3 --set x=1": "tunable",
        "naive 3 3 3 --layout xy": "nn, nt, tn, tt",
        "naive 3 3 3 --dtype ,": "is not a dtype",
        "naive 3 3 3 --adapter no-such-adapter": "there is 0:",
        **{f"naive 3 3 3 {each}": words for each, words in ENGINES.items()},
        "naive 100000 100000 100000": "elements of one buffer",
        "naive 1000000000000 1 1": "elements of one buffer",
        "pipelined 1 1 10000000": "inner steps",
    },
    "check": {"x": "Usage", **PLUGINS},
    "kernel": {"x": "No such command"},
    "kernel check": {
        **TEXTS,
        f"{TEXT} --uniform m,n,k --sizes ²": "at least 1",
        f"{TEXT} --uniform m,n,k --adapter ²": "there is 0:",
        **{f"{TEXT} --uniform m,n,k {each}": words for each, words in ENGINES.items()},
        f"{TEXT} --uniform m,n,k --sizes 1000000": "not enough memory",
        f"{TEXT} --uniform m,n,k --sizes 8@2": "leave the batch out",
        "tiles.wgsl --workgroup 16,16 --grid m*100000 --uniform m,n,k": "workgroups along an axis",
        f"{TEXT} --uniform m,n,k --dtype ,": "is not a dtype",
    },
    "kernel bench": {
        **TEXTS,
        f"{TEXT} --uniform m,n,k --sizes ²": "at least 1",
        f"{TEXT} --uniform m,n,k --kernels nope": "choose from naive",
        f"{TEXT} --uniform m,n,k --adapter ²": "there is 0:",
        **{f"{TEXT} --uniform m,n,k {each}": words for each, words in ENGINES.items()},
        f"{TEXT} --uniform m,n,k --budget nan": "no number of seconds",
        f"{TEXT} --uniform m,n,k --json missing/r.json": "no folder",
        f"{TEXT} --uniform m,n,k --dtype ,": "is not a dtype",
    },
    "run": {
        "missing.zarr a.npy -o c.npy": "cannot read missing.zarr as a Zarr array",
        "a.npy a.npy -o c.txt --workers 1": "the output is .npy or .zarr",
        "a.npy a.npy -o missing/c.zarr": "no folder",
        "a.npy a.npy -o c.npy --workers -1": "is not in the range",
        "a.npy a.npy -o c.npy --workers 2 --memory much": "--memory is an amount such as 8GB",
        "a.npy a.npy -o c.npy --memory 8GB": "--memory is for --workers",
        "a.npy a.npy -o c.npy --workers 2 --engine dawn": "set WEBMM_ENGINE",
        "a.npy a.npy -o c.zarr --kernel naive": "are for .npy files",
        "fifo a.npy -o c.zarr": "it is a pipe",
        "large.npy large.npy -o c.npy --workers 1": "it takes 1,000,000,000,000 bytes, there are",
        "": "Usage",
        "a.npy a.npy -o c.npy --profile=trace.txt": "a trace is .json",
        "a.npy a.npy -o c.npy --profile=missing/trace.json": "no folder",
        "a.npy a.npy -o c.npy --kernel nope": "choose from naive",
        "a.npy a.npy -o c.npy --adapter ²": "there is 0:",
        **{f"a.npy a.npy -o c.npy {each}": words for each, words in ENGINES.items()},
        "a.npy a.npy --output missing/c.npy": "no folder",
        f"{RED} a.npy -o c.npy": r"cannot read \x1b[31m",
        "fifo a.npy -o c.npy": "it is a pipe or a device",
        "a.npy /dev/zero -o c.npy": "it is a pipe or a device",
        "large.npy large.npy -o c.npy": "there is not enough memory",
    },
    "bundle": {"a.npy": "is a file", "fifo": "is a file", ".": "holds other files"},
    "leaderboard": {
        **dict.fromkeys(("missing", ".", "fifo", "/dev/zero"), "cannot read"),
        "a.npy": "cannot read",
    },
    "serve": {
        "missing --no-browser": "missing",
        ". --no-browser": "webmm",
        "--port 99999": "--port",
        "--port ²": "--port",
    },
    "tune": {
        **PLUGINS,
        "--sizes ²": "at least 1",
        "--sizes 1000000": "elements of one buffer",
        "--layout xy": "nn, nt, tn, tt",
        "--dtype ,": "is not a dtype",
        "--adapter no-such-adapter": "there is 0:",
        **ENGINES,
        "--op nope": "choose from gemm",
        "--budget nan": "no number of seconds",
        "--budget inf": "budget",
        "--json missing/r.json": "no folder",
    },
    "cache": {"x": "No such command"},
    "cache show": {"x": "Usage"},
    "cache clear": {"x": "Usage"},
    "cache export": {"missing/r.json": "cannot write", ".": "cannot write", "fifo": "nobody reads"},
    "cache import": {
        "missing.json": "No such file",
        ".": "Is a directory",
        "fifo": "it is a pipe or a device",
        "/dev/zero": "it is a pipe or a device",
        "a.npy": "cannot read a.npy",
        "large.npy": "of which texts have at most",
    },
    "plan": {
        "0 1 1": "a size is three whole numbers",
        f"{LONG} 1 1": "a size is three whole numbers",
        "1 1 ²": "a size is three whole numbers",
        "1 1": "takes 3 values",
        "1 1 1 --devices 0": "is not in the range",
        "1 1 1 --devices 99999": "is not in the range",
        "1 1 1 --rate fast": "--rate is an amount such as 80GB",
        "1 1 1 --memory -1GB": "--memory is an amount",
        f"1 1 1 --memory {LONG}": "--memory is an amount",
        "1 1 1 --bandwidth 0": "--bandwidth is an amount",
        "1 1 1 --host nan": "--host is an amount",
        "1 1 1 --dtype int8": "is not supported by products",
        "1 1 1 --dtype object": "is not supported",
    },
    "explain": {
        **{f"8 8 8 {each}": words for each, words in PLUGINS.items()},
        f"{LONG} 1 1": "with numbers of at least 1",
        "1000000000000 1000000000000 1000000000000": "only a smaller one is explained",
        "1000000000000 1 1": "only a smaller one is explained",
        "8 8 8 --dtype ,": "is not a dtype",
        "8 8 8 --adapter ²": "there is 0:",
        "8 8 8 --op nope": "choose from gemm",
        "8 8 8 --layout xy": "nn, nt, tn, tt",
        **{f"8 8 8 {each}": words for each, words in ENGINES.items()},
    },
}

# By setting: what may stand in a file, as TOML → words.
SETTINGS: dict[str, dict[str, str]] = {
    "adapter": {"true": "takes text", '"²"': "there is 0:", '"\\u0000"': "takes no NUL", NESTED: "is no TOML"},
    "engine": {"1.5": "takes text", '"no such engine"': "dawn", '"\\u001b[31m"': r"'\x1b[31m'"},
    "cache_dir": {'"~no such user/x"': "a user that there is not", '"\\u0000"': "takes no NUL", "[]": "takes text"},
    "precision": {'"low"': "highest or high", "1": "highest or high", '"\\u001b[31m"': r"'\x1b[31m'"},
    "tune": {"1": "off, cached, quick or auto", "[[1]]": "off, cached, quick or auto", '"\\u001b[31m"': r"'\x1b[31m'"},
    "tune_budget": {
        **dict.fromkeys(("nan", "inf", "-1", "1e300", "true", "{}", "9" * 400), "takes a number of seconds"),
        LONG: "is no TOML",
    },
    "selftest": {"2": "on or off", "{}": "on or off"},
    "log": {'"shout"': "neither a topic", '"\\u001b[31m"': r"'\x1b[31m'", "{a = 1}": "takes text"},
    "log_file": {'"missing/webmm.log"': "cannot write the log", '"."': "cannot write the log", "[]": "takes text"},
    "naga": {"1.5": "takes text", '"/"': "was found", '"/dev/null"': "was found", '"\\u0000"': "takes no NUL"},
}

# By module of the page, and what of it takes something in: the tests of tests/web/test_page.py that hand it the worst.
PAGE: dict[str, tuple[str, ...]] = {
    "main.js localStorage.getItem": ("test_what_cannot_be_read_of_earlier_visits_is_forgotten",) * 2,
    "main.js location.hash": (
        *("test_names_that_no_panel_has",) * 2,
        *("test_a_link_unpacks_to_so_much_only", "test_a_link_carries_a_run"),
    ),
    "panels/multiply.js .files": ("test_malformed_files_are_refused_in_words",) * 2,  # chosen and dropped
    'panels/multiply.js type: "file"': ("test_malformed_files_are_refused_in_words",),
    'panels/multiply.js type: "number"': ("test_sizes_that_do_not_fit",) * 2,
    'panels/multiply.js h("textarea"': ("test_sizes_that_do_not_fit",),
    "panels/tune.js .files": ("test_tune_refuses_what_it_cannot_read",),
    'panels/tune.js type: "file"': ("test_tune_refuses_what_it_cannot_read",),
    'panels/tune.js type: "number"': ("test_tune_takes_whole_numbers_only",),  # one function makes them all
}

HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}\n"
FLOATS = "'<f4'"
# Headers of .npy files → words.
HEADERS: dict[str, str] = {
    HEADER.format(FLOATS, "(10000000000000000000000000, 4)"): "not a .npy file",
    HEADER.format(FLOATS, "(0, 10000000000000000000000000)"): "not a .npy file",
    HEADER.format(FLOATS, "(4294967296, 4294967296)"): "not a .npy file",
    HEADER.format(FLOATS, "(True, True)"): "not a .npy file",
    HEADER.format(FLOATS, "(-4, -4)"): "not a .npy file",
    HEADER.format(FLOATS, "(4.0, 4)"): "not a .npy file",
    HEADER.format(FLOATS, "(400, 400)"): "not a .npy file",
    HEADER.format(FLOATS, "(2**3, 4)"): "not a .npy file",
    HEADER.format(FLOATS, "None"): "not a .npy file",
    HEADER.format(FLOATS, "(0, 4)"): "empty",
    HEADER.format(FLOATS, "(16,)"): "1-D",
    HEADER.format(FLOATS, "(4, 4)") + " " * 20_000: "not a .npy file",
    HEADER.format("'O'", "(4, 4)"): "not a .npy file",
    HEADER.format("'<U0'", "(4, 4)"): "cast to float32 or float16",
    HEADER.format("'>f4'", "(4, 4)"): "cast to float32 or float16",
    HEADER.format("'<c8'", "(2, 4)"): "cast to float32 or float16",
    HEADER.format("'<M8[s]'", "(2, 4)"): "cast to float32 or float16",
    HEADER.format("[('\\x1b[31m', '<f4')]", "(4, 4)"): "cast to float32 or float16",
    HEADER.format("('<f4', (99999999999,))", "(2, 4)"): "not a .npy file",
    HEADER.format("'" + RED + "'", "(4, 4)"): "not a .npy file",
    "{b'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }\n": "not a .npy file",
    **dict.fromkeys(
        ("{'descr'\n", "[" * 9000, "(" * 9000, "-" * 9000, "  a\n b\n", "'''\n", "\0" * 50, "('a',)", "{1: 2}", ""),
        "not a .npy file",
    ),
}

# What may lie at an entrance for records, and in the cache as tuned records → words. `test_records.py` has each field.
RECORDS: dict[str, str] = {
    "": "no JSON",
    NESTED: "no JSON",
    '{"schema":' * 100_000: "no JSON",
    LONG: "no JSON",
    "\ufeff{}": "no JSON",
    "[]": "no webmm.records/1 document",
    json.dumps({"schema": RED * 1000}): r"of schema '\x1b[31m",
    SCHEMA + "{}}": "no list of records",
    SCHEMA + "[1]}": "record 1 is no object",
    SCHEMA + '[{"op": 1}]}': "record 1 has no valid op",
}
# What may lie in the cache as verdicts of self-tests: none of it is an error, and nothing of it is believed or shown.
VERDICTS: tuple[str, ...] = (
    "",
    NESTED,
    "[]",
    LONG,
    '{"schema": "webmm.selftest/1"}',
    '{"schema": "webmm.selftest/1", "drivers": []}',
    '{"schema": "webmm.selftest/1", "drivers": {"DRIVER": 1}}',
    '{"schema": "webmm.selftest/1", "drivers": {"DRIVER": {"TEXT": 1}}}',
    '{"schema": "webmm.selftest/1", "drivers": {"DRIVER": {"TEXT": "\\u001b[31m"}}}',
)
