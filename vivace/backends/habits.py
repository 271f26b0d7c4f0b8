"""What an upstream server was found not to take. Servers differ in what they refuse, and say so only when asked.

A refusal that names something which changes no meaning (a role's name, a hint) teaches a habit, and the request is made
again without it. What changes the answer (sampling, formats, tools) is never dropped: that refusal goes to the client.
"""

from __future__ import annotations

import re

from vivace.backends.faults import Fault

_REFUSALS = {
    "system_for_developer": r"developer|(unexpected|invalid|unknown|supported).{0,30}\brole|\brole.{0,40}must be",
    "no_late_system": r"system.{0,60}(begin|first|start)|alternat|system role|unexpected message role|raise_exception",
    "no_system": r"system.{0,40}not supported|alternat",
    "no_prediction_with_tools": r"\bprediction\b",
    "no_prediction": r"\bprediction\b",
    "no_usage_option": r"stream_options|include_usage",
    "no_parallel": r"parallel_tool_calls",
    "no_thoughts": r"reasoning_content|\breasoning\b.{0,40}(item|input|type)|input.{0,40}\breasoning\b",
    "no_effort": r"reasoning[._]effort|\breasoning\b",
    "no_cache_key": r"prompt_cache_key",
    "no_verbosity": r"verbosity",
    "completion_tokens": r"max_completion_tokens",
    "no_allowed_tools": r"allowed_tools|tool_choice",
    "no_custom_tools": r"\bcustom|tool.{0,20}\btype|type.{0,20}\btool",
}
_PATTERNS = {habit: re.compile(pattern, re.IGNORECASE | re.DOTALL) for habit, pattern in _REFUSALS.items()}
_STATUSES = frozenset({400, 404, 415, 422, 500, 501})
"""500: chat templates raise, and servers call that their own error."""


def lessons(fault: Fault, known: set[str]) -> list[str]:
    """The habits that a refusal may teach, mildest first. Whether one changes the request is for the caller to see."""
    if fault.status not in _STATUSES or fault.code in ("context_length_exceeded", "model_not_found"):
        return []
    said = f"{fault.param or ''} {fault.message}"
    return [habit for habit, pattern in _PATTERNS.items() if habit not in known and pattern.search(said)]
