"""Conversations of the agent: append-only trees on disk that lose nothing, and go back and forth with the files."""

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import (
    Branch,
    CheckpointRef,
    Compaction,
    Entry,
    Header,
    Items,
    Mode,
    Note,
    State,
    Title,
    ToolCall,
    ToolResult,
    Unknown,
    Usage,
    User,
)
from vivace.agent.sessions.export import to_json, to_markdown
from vivace.agent.sessions.listing import Hit, Summary, conversations, conversations_folder, find, search
from vivace.agent.sessions.together import FilesAt, files_at, go_to, position_of, reconcile, step_back, step_forth

__all__ = [
    "Branch",
    "CheckpointRef",
    "Compaction",
    "Conversation",
    "Entry",
    "FilesAt",
    "Header",
    "Hit",
    "Items",
    "Mode",
    "Note",
    "State",
    "Summary",
    "Title",
    "ToolCall",
    "ToolResult",
    "Unknown",
    "Usage",
    "User",
    "conversations",
    "conversations_folder",
    "files_at",
    "find",
    "go_to",
    "position_of",
    "reconcile",
    "search",
    "step_back",
    "step_forth",
    "to_json",
    "to_markdown",
]
