"""Functions and classes: found, cut out, and put back in their exact place."""

from __future__ import annotations

from pathlib import Path

import pytest

from vivace.agent.definitions import definitions
from vivace.agent.dialect import Ask
from vivace.agent.regions import cut_out, named, put_back, ranked, surroundings
from vivace.agent.workspace import SourceFile

TEXT = '''"""Module."""

import os
from typing import List, Optional

LIMIT = 3


class Shop(Base):
    """A shop."""

    @property
    def total_price(self) -> int:
        """Sum.

        Of all.
        """

        return sum(self.items)

    def add(self, item: int) -> None:
        self.items.append(item)


def helper_one(x):
    return x


def helper_two(y: List[int]):
    return helper_one(y)
'''


@pytest.fixture
def file() -> SourceFile:
    return SourceFile(Path("shop.py"), "shop.py", TEXT.encode())


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("make helper_two return a list", "helper_two"),
        ("add a bound to the method add", "Shop.add"),
        ("add a comment", None),
        ("in class Shop, `total_price` must not be negative", "Shop.total_price"),
        ("let helper_one call helper_two", None),
        ("Shop.add must return self", "Shop.add"),
        ("make it better", None),
    ],
)
def test_the_one_definition_that_is_named(file: SourceFile, instruction: str, expected: str | None) -> None:
    found = named(file, instruction)
    assert (found.qualname if found else None) == expected


def test_likely_definitions_by_shared_words(file: SourceFile) -> None:
    assert ranked(file, "the total price should skip items that are None")[0].qualname == "Shop.total_price"
    assert ranked(file, "zzz") == []


@pytest.mark.parametrize("name", ["Shop", "Shop.total_price", "Shop.add", "helper_two"])
def test_what_is_cut_out_goes_back_unchanged(file: SourceFile, name: str) -> None:
    region = next(d for d in definitions("python", TEXT) or [] if d.qualname == name)
    shown = cut_out(file, region)
    assert not shown.startswith(" ")
    assert put_back(file, region, shown) == TEXT
    assert put_back(file, region, "\n" + shown + "\n\n") == TEXT


def test_a_reply_that_keeps_its_indentation_is_not_indented_twice(file: SourceFile) -> None:
    region = next(d for d in definitions("python", TEXT) or [] if d.name == "add")
    code = "    def add(self, item: int) -> None:\n        self.items.append(item)\n"
    assert put_back(file, region, code) == TEXT


def test_a_string_at_the_margin_is_shown_as_it_stands() -> None:
    text = 'class A:\n    def f(self):\n        return """\nmargin\n"""\n'
    file = SourceFile(Path("a.py"), "a.py", text.encode())
    region = (definitions("python", text) or [])[1]
    assert cut_out(file, region) == '    def f(self):\n        return """\nmargin\n"""\n'
    assert put_back(file, region, cut_out(file, region)) == text


def test_imports_of_a_reply_go_to_the_imports_of_the_file(file: SourceFile) -> None:
    region = next(d for d in definitions("python", TEXT) or [] if d.name == "helper_one")
    code = "import os\nfrom typing import List\nimport re\n\n\ndef helper_one(x):\n    return re.escape(x)\n"
    after = put_back(file, region, code)
    expected = TEXT.replace("Optional\n", "Optional\nimport re\n").replace("return x\n", "return re.escape(x)\n")
    assert after == expected


def test_an_import_of_a_reply_that_nothing_uses_is_left_out(file: SourceFile) -> None:
    region = next(d for d in definitions("python", TEXT) or [] if d.name == "helper_one")
    code = "import re\nfrom math import sqrt\n\n\ndef helper_one(x):\n    return re.escape(x)\n"
    after = put_back(file, region, code)
    assert "import re\n" in after and "sqrt" not in after
    assert "from math import sqrt\n" in put_back(file, region, code, unused=True)
    asked = Ask(file, "import `sqrt` for `helper_one`", region)
    assert "sqrt" in asked.whole(code) and "sqrt" not in Ask(file, "mend it", region).whole(code)


def test_the_prompt_tells_what_the_region_leans_on(file: SourceFile) -> None:
    region = next(d for d in definitions("python", TEXT) or [] if d.name == "helper_two")
    lean = surroundings(file, region)
    assert lean == ["from typing import List, Optional", "def helper_one(x)"]
    prompt = Ask(file, "do it", region).prompt
    assert "class Shop" not in prompt and prompt.count("def helper_two") == 1
    method = next(d for d in definitions("python", TEXT) or [] if d.name == "add")
    assert surroundings(file, method) == ["class Shop(Base)"]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("javascript", "export function a() {\n}\nconst f = () => {\n};\nclass B { m() {} }\n", "a f B B.m"),
        ("typescript", "interface I { x: number }\nexport class B<T> {\n  m(): void {}\n}\n", "I B B.m"),
        ("go", "package m\ntype T struct{}\nfunc (t T) M() {}\n", "T M"),
        ("rust", "struct S {}\nimpl S {\n  fn new() {}\n}\n", "S S S.new"),
        ("java", "class A {\n  A() {}\n  int f() { return 1; }\n}\n", "A A.A A.f"),
        ("c", "struct s { int a; };\nstruct s *mk(int n) { return 0; }\n", "s mk"),
        ("cpp", "int A::g() const { return 2; }\ntemplate <class T>\nT& h(T& t) { return t; }\n", "A::g h"),
        ("bash", "f() { echo; }\n", "f"),
    ],
)
def test_definitions_of_other_languages(language: str, text: str, expected: str) -> None:
    assert " ".join(d.qualname for d in definitions(language, text) or []) == expected


def test_a_prompt_for_a_file_with_fences_asks_for_a_longer_one() -> None:
    file = SourceFile(Path("a.md"), "a.md", b"# T\n```py\nx\n```\n")
    prompt = Ask(file, "fix").prompt
    assert "````markdown\n# T" in prompt and "closed by ````" in prompt
