"""Ask the user, with answers to choose from."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from vivace.agent.tools.base import Context, Option, Question, Tool, ToolResult
from vivace.errors import UsageError


class AskArguments(Struct, forbid_unknown_fields=True):
    question: str
    options: Annotated[list[str], Meta(max_length=8, description="Answers to choose from, best first.")] = []


class Ask(Tool[AskArguments]):
    """For what only the user can decide. Any other answer than the options may come back."""

    name = "ask"
    description = "Ask the user a question that you cannot answer by looking. Work stops until the answer comes."
    arguments = AskArguments

    async def run(self, arguments: AskArguments, context: Context) -> ToolResult:
        if not arguments.question.strip():
            raise UsageError("the question is empty", code="empty_question", param="question")
        question = Question(arguments.question, tuple(Option(label) for label in arguments.options))
        reply = await context.question(question)
        return ToolResult(f"The user answers: {reply}", data={"question": arguments.question, "answer": reply})
