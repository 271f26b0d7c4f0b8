"""Calls functions of one file and tells what came of it. Run by the workspace's own Python, in the sandbox.

``python -c SCRIPT SPEC``: SPEC is JSON with ``root`` and ``file`` (the file inside it), ``calls``, pairs: source,
a plain name with literals, and what is wanted, a literal, an exception's name behind ``!``, or null; with ``parts`` the
file is loaded statement by statement, and what fails is left out. The last line of the output is a JSON list: for each
call ``shown`` (the value and what became of the arguments, or the exception) and ``holds`` (null where nothing is
wanted); or a string, the reason why the file cannot be loaded.

Standard library only, and no syntax that Python 3.8 does not know.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import importlib.util
import itertools
import json
import math
import os
import pathlib
import random
import re
import signal
import sys
from typing import Any

SECONDS = 0.3
"""Of one call."""
LOOPS = 2
"""Calls that took too long, after which none is tried any more."""
TIMEOUT = "!timeout"
CLIP = 400
MEMORY = 2 << 30


class OutOfTime(BaseException):
    pass


def load(root: str, file: str) -> dict[str, Any]:
    """The names of the file, as a module of the workspace where its path makes one."""
    path = pathlib.Path(root, file)
    sys.path[:0] = [root, root + "/src", str(path.parent)]
    parts = file[: -len(".py")].split("/")
    parts = parts[1:] if parts[0] == "src" else parts
    if all(part.isidentifier() for part in parts) and len(parts) > 1:
        return vars(importlib.import_module(".".join(parts)))
    spec = importlib.util.spec_from_file_location(parts[-1], path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[parts[-1]] = module
    spec.loader.exec_module(module)
    return vars(module)


def load_parts(root: str, file: str) -> dict[str, Any]:
    """The names of as much of the file as runs here, where what it imports is not installed."""
    path = pathlib.Path(root, file)
    sys.path[:0] = [root, root + "/src", str(path.parent)]
    tree = ast.parse(path.read_bytes())
    flags = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    for node in tree.body:
        code = compile(ast.Module([node], []), str(path), "exec", flags=flags, dont_inherit=True)
        try:
            exec(code, names)
        except OutOfTime:
            raise
        except BaseException:  # a base class that is not here, a decorator of another package
            continue
    return names


def outcome(names: dict[str, Any], source: str, wanted: str | None) -> dict[str, Any]:
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    if not callable(names.get(call.func.id)):
        return {"shown": "!missing", "holds": None}
    arguments = [ast.literal_eval(argument) for argument in call.args]
    named = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    random.seed(0)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        value = names[call.func.id](*arguments, **named)
        if hasattr(value, "__next__"):
            value = list(itertools.islice(value, 100))
    except OutOfTime:
        return out_of(wanted)
    except BaseException as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"shown": "!" + kinds[0], "holds": None if wanted is None else wanted[:1] == "!" and wanted[1:] in kinds}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    text = shown(value) + " after " + shown([arguments, named])
    if wanted is None or wanted.startswith("!"):
        return {"shown": text, "holds": None if wanted is None else False}
    return {"shown": text, "holds": same(value, ast.literal_eval(wanted))}


def out_of(wanted: str | None) -> dict[str, Any]:
    return {"shown": TIMEOUT, "holds": None if wanted is None else False}


def same(value: Any, wanted: Any) -> bool:
    try:
        if isinstance(value, float) and isinstance(wanted, (int, float)):
            return math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-9)
        return bool(value == wanted) or repr(value) == repr(wanted)
    except Exception:
        return False


def shown(value: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:CLIP]
    except Exception as error:
        return "!repr " + type(error).__name__


def out_of_time(number: int, frame: object) -> None:
    raise OutOfTime


def limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, OSError, ValueError):  # a machine that knows no such limit
        pass


def main(spec: dict[str, Any]) -> None:
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    limit_memory()
    signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    told: Any
    try:
        names = (load_parts if spec.get("parts") else load)(spec["root"], spec["file"])
    except BaseException as error:
        told = type(error).__name__ + ": " + str(error)[:CLIP]
    else:
        signal.setitimer(signal.ITIMER_REAL, 0)
        told = []
        for call, wanted in spec["calls"]:
            loops = sum(one["shown"] == TIMEOUT for one in told) >= LOOPS
            told.append(out_of(wanted) if loops else outcome(names, call, wanted))
    os.write(answer, ("\n" + json.dumps(told) + "\n").encode())
    # Threads and exit handlers of the code are none of our business.
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
