from __future__ import annotations

import math

import pytest

from impl.costs import Cost, Costs, cost_ms
from impl.device.protocol import DeviceSettings
from impl.errors import SettingError
from tests.build import batch, stages


def test_a_cost_is_linear_in_requests_and_tokens() -> None:
    assert Cost(100, 10, 1)(batch(size=3, num_tokens=7)) == 100 + 30 + 7
    assert cost_ms(1.5, per_request=0.25, per_token=1e-6) == Cost(1_500_000, 250_000, 1)


def test_scaling_multiplies_every_term_of_every_stage() -> None:
    assert Costs(pre=Cost(10, 4, 2), copy=Cost(6)).scaled(0.5) == Costs(pre=Cost(5, 2, 1), copy=Cost(3))


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, -math.inf, True, "3", None])
def test_milliseconds_must_be_finite_and_not_negative(value: float) -> None:
    for name, make in (
        ("fixed", lambda: cost_ms(value)),
        ("per_request", lambda: cost_ms(per_request=value)),
        ("per_token", lambda: cost_ms(per_token=value)),
    ):
        with pytest.raises(SettingError) as caught:
            make()
        assert str(caught.value) == f"{name} is {value!r} ms; allowed: a finite number of milliseconds, 0 or more"


@pytest.mark.parametrize("value", [-1, 1.0, math.nan, math.inf, True, None])
def test_nanoseconds_must_be_whole_and_not_negative(value: int) -> None:
    for name in ("fixed_ns", "per_request_ns", "per_token_ns"):
        with pytest.raises(SettingError) as caught:
            Cost(**{name: value})
        assert str(caught.value) == f"{name} is {value!r}; allowed: a whole number of nanoseconds, at least 0"


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True])
def test_a_scale_must_be_finite_and_above_0(value: float) -> None:
    with pytest.raises(SettingError) as caught:
        stages().scaled(value)
    assert str(caught.value) == f"scale is {value!r}; allowed: a finite number of times the original time above 0"


@pytest.mark.parametrize("value", [0, -5, 1.5, True, None])
def test_a_forward_has_a_whole_number_of_kernels(value: int) -> None:
    with pytest.raises(SettingError) as caught:
        DeviceSettings(kernels_per_forward=value)
    assert str(caught.value) == f"kernels_per_forward is {value!r}; allowed: a whole number of kernels, at least 1"
