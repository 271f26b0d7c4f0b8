"""Settings come from the environment, and what is wrong with them is said in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UsageError
from vivace.settings import Settings, unknown_variables


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("VIVACE_THREADS", "abc", "VIVACE_THREADS is 'abc'; it takes a whole number."),
        ("VIVACE_KV_TOKENS", "1.5", "VIVACE_KV_TOKENS is '1.5'; it takes a whole number."),
        ("VIVACE_RESIDENT_MINUTES", "x", "VIVACE_RESIDENT_MINUTES is 'x'; it takes a number."),
        ("VIVACE_DEVICE", "gpu", "VIVACE_DEVICE is 'gpu'; it is one of auto, cpu or cuda."),
        ("VIVACE_KV_TYPE", "fp8", "VIVACE_KV_TYPE is 'fp8'; it is one of bf16 or int8."),
        ("vivace_threads", "abc", "VIVACE_THREADS is 'abc'; it takes a whole number."),
        (
            "VIVACE_RESPONSE_DAYS",
            "-1",
            "VIVACE_RESPONSE_DAYS is '-1'; input should be greater than or equal to 0.",
        ),
    ],
)
def test_a_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        Settings()
    assert (str(caught.value), caught.value.code, caught.value.exit_code) == (told, "bad_setting", 2)


def test_a_bad_value_that_was_handed_over_has_its_own_name() -> None:
    with pytest.raises(UsageError, match=r"^threads is 'many'; it takes a whole number\.$"):
        Settings(threads="many")
    assert Settings(threads=3, state_dir=Path("here")).state_dir == Path("here")


def test_a_variable_that_is_no_setting_is_told() -> None:
    environ = {"VIVACE_TREADS": "1", "VIVACE_THREADS": "1", "VIVACE_API_KEY": "k", "vivace_device": "cpu", "HOME": "/"}
    assert unknown_variables(environ) == [
        "VIVACE_TREADS is no setting and changes nothing. Did you mean VIVACE_THREADS?"
    ]
    assert unknown_variables({"VIVACE_QQ": "1"}) == ["VIVACE_QQ is no setting and changes nothing."]


@given(st.sampled_from(sorted(Settings.model_fields)))
def test_every_setting_is_known(name: str) -> None:
    assert unknown_variables({f"VIVACE_{name.upper()}": "1"}) == []
