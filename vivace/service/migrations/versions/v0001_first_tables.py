"""The first tables: usage, responses, keys, credits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("id", _COUNT, primary_key=True, autoincrement=True, nullable=False),
        sa.Column("response", sa.String(length=128), unique=True, nullable=False),
        sa.Column("server", sa.String(length=32), nullable=False),
        sa.Column("principal", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("family", sa.String(length=255), nullable=False),
        sa.Column("tier", sa.String(length=64), nullable=False),
        sa.Column("backend", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("accepted_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("credits", sa.Boolean(), nullable=False),
        sa.Column("ttft_ms", sa.BigInteger(), nullable=True),
        sa.Column("queue_ms", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=False),
        sa.Column("day", sa.String(length=10), nullable=False),
    )
    op.create_index("usage_created", "usage", ["created"])
    op.create_index("usage_ended", "usage", ["ended"])
    op.create_index("usage_principal_day", "usage", ["principal", "day"])
    op.create_table(
        "responses",
        sa.Column("id", sa.String(length=128), primary_key=True, nullable=False),
        sa.Column("principal", sa.String(length=255), nullable=False),
        sa.Column("previous", sa.String(length=128), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=False),
        sa.Column("items", sa.LargeBinary(), nullable=False),
    )
    op.create_index("responses_expires", "responses", ["expires"])
    op.create_table(
        "keys",
        sa.Column("id", _COUNT, primary_key=True, autoincrement=True, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), unique=True, nullable=False),
        sa.Column("prefix", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("principal", sa.String(length=255), nullable=False),
        sa.Column("plan", sa.String(length=64), nullable=True),
        sa.Column("models", sa.String(length=4096), nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger(), nullable=True),
        sa.Column("tokens_per_day", sa.BigInteger(), nullable=True),
        sa.Column("concurrent", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.Column("last_used", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "credits",
        sa.Column("principal", sa.String(length=255), primary_key=True, nullable=False),
        sa.Column("balance", sa.BigInteger(), nullable=False),
        sa.Column("opted_in", sa.Boolean(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("credits")
    op.drop_table("keys")
    op.drop_table("responses")
    op.drop_table("usage")
