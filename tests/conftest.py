"""What all tests share: one Hypothesis profile, the same examples on every run and on every machine."""

from hypothesis import HealthCheck, settings

# No deadline: the first run of a shader compiles it, for seconds on a CPU. No database: it would be another input.
settings.register_profile(
    "webmm",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("webmm")
