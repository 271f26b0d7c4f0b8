"""What a request asks for: tools parsed once, continuations only where nothing has changed, refusals by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.service.lines import ME, PATCH, SHELL, TEAM, Watched, answer, gateway, request, run
from vivace.dialects.tools import ToolTable
from vivace.errors import UsageError, VivaceError
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import AdditionalTools
from vivace.service.asking import Tables, as_refusal
from vivace.service.registry import Backends

CHOICES: list[Any] = [None, "auto", "none", "required", {"type": "function", "name": "shell"}]


@given(
    st.lists(st.sampled_from([SHELL, PATCH, TEAM]), min_size=1, max_size=3),
    st.sampled_from(CHOICES),
    st.booleans(),
    st.booleans(),
)
def test_a_table_that_was_parsed_before_is_the_one_that_would_be_parsed_now(
    tools: list[Any], choice: Any, parallel: bool, more: bool
) -> None:
    tables = Tables(most=2)
    asked = request(tools=[SHELL, *tools], tool_choice=choice, parallel_tool_calls=parallel)
    added = [AdditionalTools([{**SHELL, "name": "more"}])] if more else []
    table = tables.of(asked, added)
    assert table == ToolTable.of(asked.tools or [], choice, parallel, added)
    assert tables.of(request(tools=[SHELL, *tools], tool_choice=choice, parallel_tool_calls=parallel), added) is table
    for name in ("x", "y"):
        tables.of(request(tools=[{**SHELL, "name": name}]), [])
    assert len(tables._kept) == 2
    assert tables.of(asked, added) == table


def test_wrong_tools_are_refused_each_time() -> None:
    tables = Tables()
    wrong = request(tools=[{"type": "function"}])
    for _ in range(2):
        with pytest.raises(UsageError) as caught:
            tables.of(wrong, [])
        assert caught.value.param == "tools[0].name"
    assert not tables._kept


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "conversation"),
        ({"multi_agent": {"enabled": True}}, "multi_agent"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True, "store": False}, "background"),
        ({"background": True, "stream_id": "a"}, "background"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"service_tier": "warp"}, "service_tier"),
        ({"given": []}, "input"),
        ({"given": [{"type": "item_reference", "id": "msg_1"}]}, "input"),
    ],
)
def test_what_is_not_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    async def work() -> None:
        service = gateway()
        with pytest.raises(BadRequest) as caught:
            # The unknown response comes second, so that the request's own fault is told.
            if "previous_response_id" in fields:
                first, _ = await answer(service, max_output_tokens=1)
                fields["previous_response_id"] = first.id
            await service.respond(request(**fields), ME)
        assert (caught.value.status, caught.value.param) == (400, param)
        await service.close()

    run(work)


def test_what_clients_send_and_nobody_needs_is_taken() -> None:
    async def work() -> None:
        service = gateway()
        response, _ = await answer(
            service,
            max_output_tokens=1,
            client_metadata={"session_id": "s"},
            multi_agent={"enabled": False},
            truncation="auto",
            include=["unknown.thing"],
            prompt_cache_retention="24h",
            safety_identifier="x",
            tools=[{"type": "web_search"}, SHELL],
            unknown_key=1,
        )
        assert response.status == "incomplete"
        await service.close()

    run(work)


def test_a_continuation_counts_where_nothing_before_has_changed() -> None:
    async def work() -> None:
        backend = Watched([{"steps": [{"text": "so"}]}])
        service = gateway(backend)
        first, _ = await answer(service, tools=[SHELL], instructions="I.")
        same = {"previous_response_id": first.id, "tools": [SHELL], "instructions": "I."}
        for changed, known in (
            ({}, 3),
            ({"tool_choice": "none"}, 3),
            ({"tools": [PATCH]}, 0),
            ({"instructions": "J."}, 0),
            ({"instructions": None}, 0),
        ):
            await answer(service, "more", **{**same, **changed})
            job = backend.jobs[-1]
            assert (job.known, job.continuation is not None) == (known, known > 0)
            assert job.affinity == ""  # how the conversation begins is the same for all of its turns
        await answer(service, "more", **same, prompt_cache_key="k")
        assert backend.jobs[-1].affinity == "k"
        # Another backend cannot read it.
        other = Watched()
        service.backends = service.desk.backends = Backends({"other": other}, {"paced": "other"})
        await answer(service, "more", **same, max_output_tokens=1)
        assert other.jobs[0].continuation is None
        assert len(other.jobs[0].items) == 4
        await backend.close()
        await service.close()

    run(work)


def test_tools_that_were_added_in_a_conversation_stay() -> None:
    async def work() -> None:
        backend = Watched([{"steps": [{"call": "late", "arguments": {}}]}, {"steps": [{"text": "so"}]}])
        service = gateway(backend)
        added = {"type": "additional_tools", "role": "developer", "tools": [{**SHELL, "name": "late"}]}
        first, _ = await answer(service, [added, {"role": "user", "content": "go"}])
        await answer(service, "more", previous_response_id=first.id)
        assert [tool.name for tool in backend.jobs[1].tools.tools] == ["late"]
        assert backend.jobs[1].continuation is not None
        await service.close()

    run(work)


def test_errors_have_a_status() -> None:
    for error, status, code in (
        (UsageError("no", code="model_not_found"), 404, "model_not_found"),
        (UsageError("no"), 400, "invalid_value"),
        (VivaceError("no", code="database_unavailable"), 503, "database_unavailable"),
        (VivaceError("no", code="context_length_exceeded"), 400, "context_length_exceeded"),
        (VivaceError("no", hint="try"), 500, "error"),
    ):
        found = as_refusal(error)
        assert (found.status, found.code, found.message, found.hint) == (status, code, "no", error.hint)
