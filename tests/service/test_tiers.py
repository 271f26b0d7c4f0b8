"""The tiers file: what it decides, and what is said of a wrong one."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UsageError
from vivace.protocol.items import InputTokensDetails, Usage
from vivace.service.plans import OPEN
from vivace.service.tiers import TierTable
from vivace.service.toml_file import line_of

EXAMPLE = Path(__file__).parents[2] / "vivace" / "service" / "tiers.example.toml"


def table(folder: Path, text: str) -> TierTable:
    file = folder / "tiers.toml"
    file.write_text(text, encoding="utf-8")
    return TierTable.load(file)


def used(read: int, cached: int, made: int) -> Usage:
    return Usage(input_tokens=read, input_tokens_details=InputTokensDetails(cached_tokens=cached), output_tokens=made)


def test_without_a_file_there_are_the_tiers_of_openai() -> None:
    tiers = TierTable.load(None)
    assert list(tiers.tiers) == ["default", "flex", "priority", "ultrafast"]
    plan = tiers.plan(None)
    assert plan is OPEN
    for asked, served in {
        None: "default",
        "auto": "default",
        "default": "default",
        "standard_only": "default",
        "scale": "default",
        "flex": "flex",
        "fast": "priority",
        "priority": "priority",
        "ultrafast": "ultrafast",
    }.items():
        assert tiers.resolve(asked, "any-model", plan).id == served
    ranks = [tiers.tiers[name] for name in ("flex", "default", "priority", "ultrafast")]
    assert [t.priority for t in ranks] == sorted({t.priority for t in ranks})
    assert [t.weight for t in ranks] == sorted({t.weight for t in ranks})
    assert tiers.cost("any-model", ranks[0], used(1000, 0, 1000)) == 0


def test_the_example_is_a_table_that_uses_everything() -> None:
    tiers = TierTable.load(EXAMPLE)
    team, guest = tiers.plan("team"), tiers.plan(None)
    assert guest.id == "guest"
    assert tiers.resolve(None, "coder-0.5b", guest).id == "flex"
    assert tiers.resolve("fast", "coder-0.5b", team).id == "priority"
    ultrafast = tiers.resolve("ultrafast", "coder-0.5b", team)
    assert ultrafast.backend_for("coder-0.5b") == "gpu-fast"
    assert ultrafast.backend_for("other") is None
    assert tiers.family("coder-7b-instruct") == "large"
    assert tiers.family("unheard-of") == "unheard-of"
    assert tiers.window_lengths == {60, 18000, 604800}
    assert [window.name for window in team.windows_of("large")] == ["tokens/5h", "tokens/7d", "output_tokens/5h"]
    assert [window.name for window in team.windows_of("small")] == ["tokens/5h", "tokens/7d"]


def test_a_wrong_tier_is_refused_by_name() -> None:
    tiers = TierTable.load(EXAMPLE)
    with pytest.raises(UsageError) as unknown:
        tiers.resolve("ultrafst", "coder-0.5b", tiers.plan("team"))
    assert unknown.value.code == "tier_not_found"
    assert unknown.value.param == "service_tier"
    assert "'ultrafst'" in unknown.value.message
    assert "ultrafast" in unknown.value.hint
    with pytest.raises(UsageError) as outside:
        tiers.resolve("fast", "coder-0.5b", tiers.plan("guest"))
    assert outside.value.code == "tier_not_allowed"
    assert "'guest'" in outside.value.message
    assert "'priority'" in outside.value.message
    assert outside.value.hint == "Offered: default, flex."
    with pytest.raises(UsageError) as not_for_it:
        tiers.resolve("ultrafast", "other", tiers.plan("team"))
    assert not_for_it.value.code == "tier_not_allowed"
    assert "'other'" in not_for_it.value.message
    with pytest.raises(UsageError, match="no plan 'tean'") as plan:
        tiers.plan("tean")
    assert "team" in plan.value.hint


def test_the_catalogue_lists_what_is_offered() -> None:
    tiers = TierTable.load(EXAMPLE)
    assert [entry["id"] for entry in tiers.for_catalogue("other")] == ["default", "flex", "priority"]
    entries = tiers.for_catalogue("coder-0.5b", tiers.plan("guest"))
    assert entries[1] == {"id": "flex", "name": "Flex", "description": "Waits when others are busy, at half the price."}


def test_prices_are_exact_and_rounded_once_half_to_even() -> None:
    tiers = TierTable.load(EXAMPLE)
    default, flex, fast = (tiers.tiers[name] for name in ("default", "flex", "priority"))
    # 0.10 a million fresh, 0.01 cached, 0.40 made: in millionths 90 + 0.1 -> 90.1, and 4.
    assert tiers.cost("coder-0.5b", default, used(910, 10, 10)) == 94
    assert tiers.cost("coder-0.5b", fast, used(910, 10, 10)) == 141  # x 1.5 = 141.15
    assert tiers.cost("coder-7b", fast, used(910, 10, 10)) == 188  # x 2 = 188.2
    assert tiers.cost("coder-7b", flex, used(10, 0, 0)) == 0  # 0.5
    assert tiers.cost("coder-7b", flex, used(30, 0, 0)) == 2  # 1.5
    # A price of its own for cached tokens is not given: as fresh ones.
    assert tiers.cost("other", default, used(10, 10, 0)) == 5


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.decimals(0, 1000, places=6),
    st.decimals(0, 1000, places=6),
    st.decimals(0, 100, places=4),
)
def test_a_cost_is_within_half_a_millionth(
    fresh: int, cached: int, made: int, read_price: Decimal, made_price: Decimal, factor: Decimal
) -> None:
    from fractions import Fraction

    from vivace.service.tiers import Price, Tier, TierFile

    tier = Tier(id="default", price={"m*": factor})
    tiers = TierTable(TierFile(tiers=[tier], prices=[Price(model="m", input=read_price, output=made_price)]))
    exact = Fraction(factor) * ((fresh + cached) * Fraction(read_price) + made * Fraction(made_price))
    assert abs(tiers.cost("m", tier, used(fresh + cached, cached, made)) - exact) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ('[[tier]]\nid = "default"\n\n[[tier]]\nid = "b"\nwieght = 2\n', ":6: tier[1].wieght: ", "weight"),
        ('[[tier]]\nid = "default"\nweight = "much"\n', ":3: tier[0].weight: ", "`float`"),
        ('[[tier]]\nname = "x"\n', ":1: tier[0]: ", "`id`"),
        ('[[tier]]\nid = "default"\nweight = 0\n', ":3: tier[0].weight: ", "above 0"),
        ('[[tier]]\nid = "default"\nweight = inf\n', ":3: tier[0].weight: ", "above 0"),
        ('[[tier]]\nid = "default"\n[tier.price]\n"a-*" = -1\n', ":4: tier[0].price.a-*: ", "below 0"),
        ('[[tier]]\nid = "default"\nprice = { "a-*" = nan }\n', ":3: tier[0].price.a-*: ", "below 0"),
        ('[[tier]]\nid = "default"\naliases = ["auto"]\n', ":3: tier[0].aliases: ", "'auto' is taken"),
        ('[[tier]]\nid = "default"\n[[tier]]\nid = "default"\n', ":4: tier[1].id: ", "is taken"),
        ('[[tier]]\nid = "de fault"\n', ":2: tier[0].id: ", "cannot be the name"),
        ('[[tier]]\nid = "default"\nmax_concurrent = 0\n', ":3: tier[0].max_concurrent: ", "above 0"),
        ('[[tier]]\nid = "only"\n', ":1: tier: ", "'default'"),
        ('[[price]]\nmodel = "*"\ninput = -0.1\noutput = 1\n', ":3: price[0].input: ", "below 0"),
        ('[[price]]\nmodel = "*"\ninput = true\noutput = 1\n', ":3: price[0].input: ", "`decimal`"),
        ('[[plan]]\nid = "p"\ntiers = ["default", "fex"]\n', ":3: plan[0].tiers: ", "flex"),
        ('[[plan]]\nid = "p"\ndefault_tier = "fex"\n', ":3: plan[0].default_tier: ", "flex"),
        ('[[plan]]\nid = "p"\ntiers = ["flex"]\n', ":1: plan[0].default_tier: ", "not among"),
        ('[[plan]]\nid = "p"\ncached_percent = 101\n', ":3: plan[0].cached_percent: ", "0 to 100"),
        ('[[plan]]\nid = "p"\n[[plan]]\nid = "p"\n', ":4: plan[1].id: ", "is taken"),
        (
            '[[plan]]\nid = "p"\n[[plan.window]]\nmeter = "tokens"\nseconds = 60\nlimit = 1\n'
            '[[plan.window]]\nmeter = "tokns"\nseconds = 60\nlimit = 1\n',
            ":8: plan[0].window[1].meter: ",
            "'tokns'",
        ),
        (
            '[[plan]]\nid = "p"\n[[plan.window]]\nmeter = "tokens"\nseconds = 0\nlimit = 1\n',
            ":5: plan[0].window[0].seconds: ",
            "from 1 s",
        ),
        (
            '[family]\nsmall = ["a"]\n[[plan]]\nid = "p"\n'
            '[[plan.window]]\nmeter = "tokens"\nseconds = 9\nlimit = 1\nfamily = "smal"\n',
            ":9: plan[0].window[0].family: ",
            "small",
        ),
        ('default_plan = "opn"\n', ":1: default_plan: ", "open"),
        ("[[teir]]\n", ":1: teir: ", "tier"),
        ("tier = 3\n", ":1: tier: ", "`array`"),
        ("x = \n", ": ", "line 1"),
    ],
)
def test_a_wrong_file_is_refused_with_file_line_and_key(tmp_path: Path, text: str, where: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        table(tmp_path, text)
    assert str(tmp_path / "tiers.toml") + where in error.value.message
    assert said in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml"):
        TierTable.load(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"binary\.toml"):
        TierTable.load(tmp_path / "binary.toml")


def test_a_table_without_tiers_keeps_the_built_in_ones(tmp_path: Path) -> None:
    tiers = table(tmp_path, 'default_plan = "p"\n[[plan]]\nid = "p"\ntiers = ["flex"]\ndefault_tier = "flex"\n')
    assert tiers.resolve("auto", "m", tiers.plan(None)).id == "flex"
    assert len(tiers.tiers) == 4


@given(st.text(alphabet="[].\"=#ab\n' 0", max_size=60), st.lists(st.sampled_from(["a", "b", 0, 1]), max_size=3))
def test_looking_for_a_line_never_fails(text: str, parts: list[str | int]) -> None:
    line = line_of(text, parts)
    assert line is None or 1 <= line <= len(text.splitlines())
