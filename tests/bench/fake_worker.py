"""A peer's worker that copies its prompt: ``fake_worker.py [MODE]``, where a mode is a way to fail."""

from __future__ import annotations

import json
import sys


def send(**event: object) -> None:
    print(json.dumps(event), flush=True)


mode = sys.argv[1] if len(sys.argv) > 1 else ""
print("a library's greeting", flush=True)
if mode == "dies":
    print("no such model", file=sys.stderr)
    sys.exit(3)
send(event="ready", detail="a copy machine", versions={"fake": "1"}, ops=["generate"])
for line in sys.stdin:
    message = json.loads(line)
    if message["op"] == "exit":
        break
    if mode == "errs":
        send(event="error", message="out of memory")
        continue
    tokens = message["tokens"][: message["max_tokens"]]
    for start in range(0, len(tokens), 2):
        send(event="tokens", tokens=tokens[start : start + 2])
    send(event="end", reason="stop", drafted=4, accepted=message["options"].get("lookup", 0))
