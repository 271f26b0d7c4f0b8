"""Conversations to token ids by the model's own chat template, and what ends its answer.

An answer that the model gave is never tokenised again: behind a continuation only what follows is rendered, and where
a client sends everything anew, ``recall`` gives the ids of answers that were given in that very place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from vivace.dialects.families import family_of
from vivace.dialects.history import Turn, WrittenCall, answer_parts, turns_of
from vivace.dialects.syntax import Part
from vivace.dialects.template import PLACEHOLDERS, JsonText, Slots, Template, shown, tool_schema
from vivace.dialects.tools import ToolTable
from vivace.errors import VivaceError
from vivace.models.tokenizer import Tokenizer
from vivace.protocol.items import Item

_OPENED = re.compile(r"<think>\s*\Z")
_NO_TOOLS = ToolTable()


class Given(Struct, frozen=True):
    """An answer that was given: its ids, and what of the reasoning the template had written before it."""

    tokens: Sequence[int]
    opening: str = ""


Recall = Callable[[bytes], Given | None]
"""Digest of a conversation that ends with an answer -> that answer."""


class Trail(Struct, frozen=True):
    """What a prompt goes on from: the ids of an earlier prompt and its answer, and the digest of all that they say."""

    tokens: Sequence[int]
    place: bytes


class Prompt(Struct, frozen=True):
    """Token ids up to where the answer begins. ``thinking``: the template has opened the reasoning already.

    ``opening`` is what it has written of it. ``place`` is the digest of the conversation so far; see :func:`answered`.
    """

    tokens: list[int]
    place: bytes
    thinking: bool = False
    opening: str = ""


class ChatDialect:
    """The chat format of one model. ``family`` overrides what its template shows."""

    def __init__(self, tokenizer: Tokenizer, family: str = "") -> None:
        if tokenizer.chat_template is None:
            raise VivaceError(
                "The model has no chat template.", hint="Take an instruction-tuned model.", code="no_chat_template"
            )
        self.tokenizer = tokenizer
        self.family = family_of(tokenizer.chat_template, family)
        bos = tokenizer.bos_id
        bos_token = tokenizer.decode([bos]) if bos is not None and not tokenizer.add_bos else ""
        self._template = Template(tokenizer.chat_template, {"bos_token": bos_token, "eos_token": ""})

    def prompt(self, items: Sequence[Item], tools: ToolTable = _NO_TOOLS) -> list[int]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        Raises :class:`VivaceError` when the template refuses the messages.
        """
        return self.compose(items, tools).tokens

    def compose(
        self,
        items: Sequence[Item],
        tools: ToolTable = _NO_TOOLS,
        *,
        trail: Trail | None = None,
        known: int = 0,
        recall: Recall | None = None,
        all_reasoning: bool = True,
        effort: str = "",
        answer: bool = True,
    ) -> Prompt:
        """The prompt of a conversation whose first ``known`` items are behind ``trail``.

        ``all_reasoning`` false shows the model only what it thought since the last user message. ``effort`` is how much
        it is to think, in the request's words. ``answer`` false ends the prompt where the next message would begin.
        """
        values: dict[str, Any] = {"add_generation_prompt": answer, **self._template.effort(effort)}
        if trail is not None and answer and (prompt := self._continued(turns_of(items[known:], tools), trail, values)):
            return prompt
        turns = turns_of(items, tools)
        place = tools.digest.encode()
        places = [place := _said(place, turn) for turn in turns]
        last_user = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=0)
        for turn in turns[: 0 if all_reasoning else last_user]:
            turn.reasoning = ""
        given: dict[int, Given] = {}
        if recall is not None:
            for n, turn in enumerate(turns):
                if turn.role == "assistant" and (all_reasoning or n > last_user):
                    found = recall(places[n])
                    given.update({n: found} if found else {})
        try:
            rendered = self._render(turns, tools, values)
        except VivaceError:
            if not any(turn.calls for turn in turns):
                raise
            rendered = self._render(turns, tools, values, structured=True)
        return Prompt(self._encode(rendered, given), place, rendered.thinking, rendered.opening)

    def answered(self, prompt: Prompt, said: Sequence[str | WrittenCall]) -> bytes:
        """The digest of a conversation with the answer to its prompt, which ``recall`` is asked for."""
        return _said(prompt.place, Turn("assistant", said=list(said)))

    @cached_property
    def end_tokens(self) -> list[int]:
        """Tokens that end an answer."""
        return sorted(self.tokenizer.eos_ids)

    @cached_property
    def end_of_turn(self) -> list[int]:
        """The one that this template ends a message with, if it can be told; a draft goes on with it."""
        slots = Slots()
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": slots.text("")}]
        marked = self._template.render(slots, messages, add_generation_prompt=False)
        after = self.tokenizer.encode(PLACEHOLDERS.split(marked)[-1], allow_special=True)
        return [token for token in after if token in self.tokenizer.eos_ids][:1]

    def reference(self, text: str) -> list[int]:
        """The tokens that an answer consisting of ``text`` would have."""
        return self.tokenizer.encode(text) + self.end_of_turn

    def _continued(self, turns: list[Turn], trail: Trail, values: dict[str, Any]) -> Prompt | None:
        """What was computed with what is new behind it; None where the template gives no such text."""
        if turns and turns[0].role == "assistant":
            return None
        # The answer's place is found by rendering one like it: what follows its text is what has to follow its ids.
        before = [Turn("user"), Turn("assistant", said=[""])]
        try:
            rendered = self._render([*before, *turns], _NO_TOOLS, values)
        except VivaceError:
            return None
        place = trail.place
        for turn in turns:
            place = _said(place, turn)
        answer = next(n for n, segment in enumerate(rendered.segments) if segment.turn == 1)
        rest = rendered.segments[answer + 1 :]
        tokens = self._closed(trail.tokens, rest)
        return Prompt(tokens + self._encode_segments(rest), place, rendered.thinking, rendered.opening)

    def _closed(self, answer: Sequence[int], rest: list[_Segment]) -> list[int]:
        """The ids of an answer, whose end token may be there already, with ``rest`` cut to what follows them."""
        tokens = list(answer)
        if tokens and rest and tokens[-1] in self.tokenizer.eos_ids:
            end = self.tokenizer.decode([tokens[-1]])
            text = rest[0].text
            if rest[0].special and text.startswith(end):
                rest[0] = _Segment(text[len(end) :], True)
            else:
                tokens.pop()  # It ended the answer, and is not how the template ends one.
        return tokens

    def _encode(self, rendered: _Rendered, given: dict[int, Given]) -> list[int]:
        """Token ids of a rendering, answers by the ids that they were given with where these are known."""
        tokenizer = self.tokenizer
        ids = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
        rest = rendered.segments
        for turn, answer in given.items():
            at = next((n for n, segment in enumerate(rest) if segment.turn == turn), 0)
            if not at or not self._role or not rest[at - 1].text.endswith(self._role):
                continue
            before, after = rest[:at], [one for one in rest[at:] if one.turn != turn]
            ids += self._encode_segments([*before, _Segment(answer.opening, True)])
            ids += self._closed(answer.tokens, after)
            rest = after
        return ids + self._encode_segments(rest)

    def _encode_segments(self, segments: list[_Segment]) -> list[int]:
        return self.tokenizer.encode_parts([(segment.text, segment.special) for segment in segments])

    @cached_property
    def _role(self) -> str:
        """What the template writes before an answer, reasoning apart; empty if that cannot be told."""
        slots = Slots()
        messages = [{"role": "user", "content": slots.text("")}]
        try:
            without = self._template.render(slots, messages, add_generation_prompt=False)
            whole = self._template.render(slots, messages, add_generation_prompt=True)
        except VivaceError:
            return ""
        return whole.removeprefix(without).partition("<think>")[0] if whole.startswith(without) else ""

    @cached_property
    def _late_system(self) -> bool:
        """The template leaves instructions where they are, several at the beginning and later ones.

        Then none are merged: tools stand behind the first, so a prompt that was prepared with the first alone, as Codex
        CLI has it prepared, is the beginning of the one that follows.
        """
        return self._keeps(["system", "system", "user", "assistant", "system", "user"])

    @cached_property
    def _system(self) -> bool:
        return self._keeps(["system", "user"])

    @cached_property
    def _users_in_a_row(self) -> bool:
        return self._keeps(["user", "user"])

    def _keeps(self, roles: list[str]) -> bool:
        """Whether messages with these roles come out in this order, each once."""
        slots = Slots()
        messages = [{"role": role, "content": slots.text("")} for role in roles]
        try:
            rendered = self._template.render(slots, messages, add_generation_prompt=True)
        except VivaceError:
            return False
        return [int(number) for number in PLACEHOLDERS.findall(rendered)] == list(range(len(roles)))

    def _render(
        self, turns: list[Turn], tools: ToolTable, values: dict[str, Any], structured: bool = False
    ) -> _Rendered:
        """The conversation as the template has it. ``structured`` leaves calls to the template."""
        slots = Slots()
        turns_at: dict[int, int] = {}
        messages: list[dict[str, Any]] = []
        block = ""
        if tools.tools and self._template.uses_tools:
            offered = [shown(tool_schema(tool, self.family.syntax), slots) for tool in tools.tools]
            values = {**values, "tools": offered}
        elif tools.tools:
            block = self.family.syntax.system(tools)
        for role, text, number in self._plain_turns(turns, block):
            if role != "assistant":
                message: dict[str, Any] = {"role": role, "content": slots.text(text)}
                if role == "tool":
                    message["tool_call_id"] = turns[number].call_id
                messages.append(message)
                continue
            turn = turns[number]
            turns_at[len(slots.contents)] = number
            content = slots.put(self._written(turn, calls=not structured))
            messages.append({"role": "assistant", "content": content})
            if structured and turn.calls:
                messages[-1]["tool_calls"] = [_structured(call, slots) for call in turn.calls]
        return _Rendered.of(self._template.render(slots, messages, **values), slots, turns_at, self._role)

    def _plain_turns(self, turns: list[Turn], block: str) -> list[tuple[str, str, int]]:
        """Roles and texts that this template takes; the last is the turn that each began as."""
        plain: list[tuple[str, str, int]] = []
        leading = True
        for number, turn in enumerate(turns):
            role, text = str(turn.role), turn.text
            leading = leading and role == "system"
            if leading and number and not self._late_system:
                plain[-1] = ("system", f"{plain[-1][1]}\n\n{text}", 0)
                continue
            if number == 0 and block:
                if role == "system":
                    text = f"{text}\n\n{block}" if text else block
                else:
                    plain.append(("system", block, 0))
            plain.append((role, text, number))
        if block and not plain:
            plain.append(("system", block, 0))
        if not self._template.answers_tools:
            plain = _answers_as_user(plain)
        system = self._system
        plain = [
            ("user", f"[system]\n{text}", number) if role == "system" and not (self._late_system if at else system)
            else (role, text, number)
            for at, (role, text, number) in enumerate(plain)
        ]  # fmt: skip
        return plain if self._users_in_a_row else _users_joined(plain)

    def _written(self, turn: Turn, calls: bool) -> list[Part]:
        """An answer of the history as the model would have written it."""
        parts: list[Part] = []
        if turn.reasoning and self.family.thinks:
            parts += [("<think>", True), (f"\n{turn.reasoning}\n", False), ("</think>", True), ("\n\n", False)]
        syntax = self.family.syntax
        said = [one for one in turn.said if calls or isinstance(one, str)]
        at = 0
        while at < len(said):
            one = said[at]
            if isinstance(one, str):
                parts += [("\n\n", False)] if at and isinstance(said[at - 1], str) else []
                parts.append((one, False))
                at += 1
                continue
            run = []
            while at < len(said) and not isinstance(call := said[at], str):
                run.append(call)
                at += 1
            parts += [(syntax.separator, False)] if turn.said[0] is not run[0] else []
            parts += syntax.write(run)
        return parts


class _Segment(Struct):
    """A stretch of a rendered prompt. ``turn`` is the one whose answer it is part of, -1 for none."""

    text: str
    special: bool
    turn: int = -1


class _Rendered(Struct):
    """A rendered prompt. ``opening`` is what stands of the answer's reasoning already, with ``thinking`` unfinished."""

    segments: list[_Segment]
    thinking: bool
    opening: str

    @classmethod
    def of(cls, text: str, slots: Slots, turns_at: dict[int, int], role: str) -> _Rendered:
        """``role`` is what the template writes before an answer."""
        segments: list[_Segment] = []
        start = 0
        for match in PLACEHOLDERS.finditer(text):
            slot = int(match.group(1))
            turn = turns_at.get(slot, -1)
            before = text[start : match.start()]
            if turn >= 0 and role and "<think>" in before and role in before:
                # Templates of reasoning models write an empty thought here; an answer is what the model wrote.
                before = before[: before.rindex(role) + len(role)]
            segments.append(_Segment(before, True))
            segments += [_Segment(part, special, turn) for part, special in slots.contents[slot]]
            start = match.end()
        rest = text[start:]
        segments.append(_Segment(rest, True))
        opening = rest[rest.rindex(role) + len(role) :] if role and role in rest else ""
        return cls(segments, _OPENED.search(text) is not None, opening)


def _said(place: bytes, turn: Turn) -> bytes:
    """The digest with one more turn; what a model thought is left out, as clients may drop it."""
    texts = answer_parts(turn.said) if turn.role == "assistant" else [turn.text]
    digest = blake2b(place, digest_size=16)
    for text in (turn.role, *texts):
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _structured(call: WrittenCall, slots: Slots) -> dict[str, Any]:
    """A call as Chat Completions has it."""
    import json

    text = json.dumps({"input": call.text}, ensure_ascii=False) if call.raw else call.text
    function = {"name": call.name, "arguments": JsonText(slots.text(text))}
    return {"id": call.call_id, "type": "function", "function": function}


def _answers_as_user(turns: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Tools' answers as user turns, those that follow each other in one, as Qwen's templates write them."""
    plain: list[tuple[str, str, int]] = []
    last = ""
    for role, text, number in turns:
        if role == "tool":
            text = f"<tool_response>\n{text}\n</tool_response>"
            if last == "tool":
                text = f"{plain.pop()[1]}\n{text}"
            plain.append(("user", text, number))
        else:
            plain.append((role, text, number))
        last = role
    return plain


def _users_joined(turns: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """One user turn instead of several, for templates in which roles take turns."""
    plain: list[tuple[str, str, int]] = []
    for role, text, number in turns:
        if role == "user" and plain and plain[-1][0] == "user":
            text = f"{plain.pop()[1]}\n\n{text}"
        plain.append((role, text, number))
    return plain
