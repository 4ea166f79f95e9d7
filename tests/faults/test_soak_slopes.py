"""Slopes of a soak: planted leaks are found, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.faults.soak_slopes import BOUNDS, is_long_enough, slope_of, slopes_of, table

HOURS, SAMPLES = 3, 1080
SECONDS = np.linspace(0, 3600 * HOURS, SAMPLES)
SERIES = 200


def wandering(rng: np.random.Generator, follows: float, count: int = SERIES) -> np.ndarray:
    """Series without a trend: first-order autoregressions of variance 1."""
    made = np.empty((count, SAMPLES))
    made[:, 0] = rng.standard_normal(count)
    for at in range(1, SAMPLES):
        news = (1 - follows**2) ** 0.5 * rng.standard_normal(count)
        made[:, at] = follows * made[:, at - 1] + news
    return made


def saw(rng: np.random.Generator) -> np.ndarray:
    """Disk use of a journal with retention: it climbs, and falls by whole files."""
    period = rng.uniform(60, 400)
    return 100 + 32 * ((SECONDS / period + rng.random()) % 1)


def plain_error(values: np.ndarray) -> tuple[float, float]:
    """Slope an hour and standard error as if samples were independent."""
    (slope, _), covariance = np.polyfit(SECONDS / 3600, values, 1, cov=True)
    return slope, covariance[0, 0] ** 0.5


@pytest.mark.parametrize("follows", [0.0, 0.8, 0.95])
def test_no_slope_is_found_where_there_is_none(follows):
    found = [slope_of(SECONDS, values) for values in wandering(np.random.default_rng(1), follows)]
    wrong = sum(abs(slope.slope) > slope.half for slope in found)
    # 1 % of 200 is 2
    assert wrong <= 8


def test_least_squares_over_samples_would_find_some():
    found = [plain_error(values) for values in wandering(np.random.default_rng(1), 0.95)]
    wrong = sum(abs(slope) > 2.58 * error for slope, error in found)
    assert wrong > SERIES / 3


def test_a_saw_does_not_grow():
    rng = np.random.default_rng(2)
    found = [slope_of(SECONDS, saw(rng)) for _ in range(SERIES)]
    assert sum(slope.grows(0.0) for slope in found) <= 8
    assert not any(slope.grows(BOUNDS["disk_mb"]) for slope in found)


@pytest.mark.parametrize("follows", [0.0, 0.8, 0.95])
def test_a_planted_leak_is_found(follows):
    """30 MB an hour under noise of 3 MB."""
    leak = 30 * SECONDS / 3600
    rng = np.random.default_rng(3)
    found = [slope_of(SECONDS, 3 * noise + leak) for noise in wandering(rng, follows)]
    assert sum(slope.grows(BOUNDS["daemon_mb"]) for slope in found) >= 0.95 * SERIES
    assert sum(abs(slope.slope - 30) <= slope.half for slope in found) >= 0.95 * SERIES


def test_a_leak_of_descriptors_is_found():
    rng = np.random.default_rng(4)
    leaked = np.floor(10 * SECONDS / 3600) + 80 + rng.integers(-2, 3, SAMPLES)
    slope = slope_of(SECONDS, leaked)
    assert slope.grows(BOUNDS["descriptors"])
    assert abs(slope.slope - 10) <= 1


def test_a_line_is_itself():
    slope = slope_of(SECONDS, 5 + 7 * SECONDS / 3600)
    assert slope.slope == pytest.approx(7)
    assert slope.half == pytest.approx(0, abs=1e-6)


def test_the_warm_up_is_left_out():
    values = np.where(0.2 * SECONDS[-1] > SECONDS, 0.0, 100.0)
    assert slope_of(SECONDS, values).slope == pytest.approx(0)


def test_what_cannot_be_judged():
    assert slope_of([], []) is None
    assert slope_of(SECONDS[:20], np.zeros(20)) is None
    assert slope_of(SECONDS, np.full(SAMPLES, np.nan)) is None
    # a gap longer than a block
    gap = np.where((SECONDS > 5000) & (SECONDS < 7000), np.nan, 1.0)
    assert slope_of(SECONDS, gap) is None
    some = np.where(np.arange(SAMPLES) % 3 == 0, np.nan, 1.0)
    assert slope_of(SECONDS, some).slope == pytest.approx(0)


def rows(seconds: np.ndarray, **leaks: float) -> list[dict[str, float]]:
    """Samples; leaks: by column, an hour."""
    return [
        {"seconds": t} | {name: 50 + leaks.get(name, 0.0) * t / 3600 for name in BOUNDS}
        for t in seconds
    ]


def test_the_table_names_what_grows():
    made = rows(SECONDS, children_mb=25.0, daemon_mb=15.0, p50_ms=-500.0)
    assert is_long_enough(made)
    text, growing = table(slopes_of(made), judged=True)
    assert growing == ["children_mb"]
    assert text.count("holds") == len(BOUNDS) - 1
    assert "| children_mb |" in text


def test_short_runs_are_not_judged():
    made = rows(SECONDS / 20, daemon_mb=1e6)
    assert not is_long_enough(made)
    text, growing = table(slopes_of(made), judged=False)
    assert growing == []
    assert text.count("not judged") == len(BOUNDS)
