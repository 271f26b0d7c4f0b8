"""Make multifile.jsonl of the packages and the tasks, and prove every task.

    python benchmarks/data/multifile/build.py

A package is whole and its tests pass; a task says what of it is put back (``changes``: ``good`` -> ``broken``), which
tests it shows beside those of the package, and which tests only grade. Proven is: before, a shown test and the hidden
ones fail; after, all pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUT = HERE / "multifile.jsonl"
SECONDS = 10
PRELUDE = """\
import sys

sys.path.insert(0, __file__.replace("\\\\", "/").rpartition("/")[0] or ".")
"""
RUN = "Run the tests with `python -m unittest`."


def tasks() -> list[dict[str, Any]]:
    """All tasks in the order of the files, as they stand in multifile.jsonl."""
    made = []
    for file in sorted((HERE / "tasks").glob("*.toml")):
        package = read(HERE / "packages" / file.stem)
        made += [task(package, entry) for entry in tomllib.loads(file.read_text("utf-8"))["task"]]
    return made


def read(folder: Path) -> dict[str, str]:
    """Path inside of the package -> text."""
    files = sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


def task(package: dict[str, str], entry: dict[str, Any]) -> dict[str, Any]:
    """One task. Raises ValueError for a change that does not fit the package."""
    after = dict(package)
    if "shown" in entry:
        test = next(path for path in after if path.startswith("tests/test_"))
        head, mark, tail = after[test].rpartition('\n\nif __name__ == "__main__":')
        after[test] = head + "\n" + entry["shown"].strip("\n") + "\n" + mark + tail
    before = dict(after)
    for change in entry["changes"]:
        path, good, broken = change["path"], change["good"], change["broken"]
        count = before[path].count(good)
        if count == 0 or (count > 1 and not change.get("every")):
            raise ValueError(f"{entry['id']}: {good!r} is {count} times in {path}")
        before[path] = before[path].replace(good, broken)
    changed = sorted(path for path in after if after[path] != before[path])
    main = next((path for path in entry["paths"] if path in changed), changed[0])
    return {
        "id": entry["id"],
        "source": "vivace",
        "licence": "Apache-2.0",
        "kind": entry["kind"],
        "language": "python",
        "instruction": f"{entry['instruction']}\n\n{RUN}",
        "path": main,
        "paths": entry["paths"],
        "before": before[main],
        "files": {path: text for path, text in before.items() if path != main},
        "tests": f'{PRELUDE}{entry["hidden"]}\nprint("TESTS PASSED")\n',
        "reference": after[main],
        "reference_files": {path: after[path] for path in changed if path != main},
    }


def passes(files: dict[str, str], arguments: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-B", *arguments], cwd=folder, capture_output=True, timeout=SECONDS, text=True
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def prove(task: dict[str, Any]) -> list[str]:
    """What is wrong with a task; nothing where it is sound."""
    before = {**task["files"], task["path"]: task["before"]}
    after = {**before, **task["reference_files"], task["path"]: task["reference"]}
    shown, hidden = ["-m", "unittest"], ["-I", "-S", "task_tests.py"]
    graded = {"task_tests.py": task["tests"]}
    found = {
        "the shown tests pass before": passes(before, shown),
        "the hidden tests pass before": passes({**before, **graded}, hidden),
        "the shown tests fail after": not passes(after, shown),
        "the hidden tests fail after": not passes({**after, **graded}, hidden),
    }
    return [f"{task['id']}: {fault}" for fault, there in found.items() if there]


def main() -> int:
    made = tasks()
    faults = [fault for task in made for fault in prove(task)]
    print("\n".join(faults) or f"{len(made)} tasks, all sound")
    if faults:
        return 1
    OUT.write_text("".join(json.dumps(task) + "\n" for task in made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
