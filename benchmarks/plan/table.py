"""Write the validation table: ``python -m benchmarks.plan.table``. A test fails when it is not what this writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vivace.plan.library import Library
from vivace.plan.printing import plain
from vivace.plan.report import class_rows, validation_rows
from vivace.plan.validate import Validation, validate

HERE = Path(__file__).parent
VALIDATION = HERE / "validation.json"
MARKDOWN = HERE / "validation.md"


def rounded(found: Validation) -> Any:
    """Plain data with four significant digits, so that another machine's last bit changes nothing."""

    def walk(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.4g}")
        if isinstance(value, dict):
            return {key: walk(each) for key, each in value.items()}
        return [walk(each) for each in value] if isinstance(value, list) else value

    return walk(plain(found))


def markdown(found: Validation) -> str:
    parts = [
        "# Validation of the planner",
        "",
        "Made by `python -m benchmarks.plan.table`; `vivace plan validate --rows` prints the same. Rows of a",
        "calibration are marked and never counted. Excluded rows stand with their reason and, where their speculation",
        "is not known, with the tokens a step that would explain their speed.",
        "",
        *_table(class_rows(found)),
        "",
        *_table(validation_rows(found)),
    ]
    return "\n".join(parts) + "\n"


def _table(rows: list[list[str]]) -> list[str]:
    head, *body = rows
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in body),
    ]


def main() -> None:
    found = validate(Library())
    VALIDATION.write_text(json.dumps(rounded(found), indent=1) + "\n", encoding="utf-8")
    MARKDOWN.write_text(markdown(found), encoding="utf-8")
    print(f"wrote {VALIDATION.name} and {MARKDOWN.name}: {len(found.rows)} rows")


if __name__ == "__main__":
    main()
