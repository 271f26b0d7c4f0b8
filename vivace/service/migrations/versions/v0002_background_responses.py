"""Background responses outlive their server: their events, and until when a server vouches for one that runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("responses", sa.Column("events", sa.LargeBinary(), nullable=True))
    op.add_column("responses", sa.Column("alive", sa.BigInteger(), nullable=True))
    op.create_index("responses_previous", "responses", ["previous"])


def downgrade() -> None:
    op.drop_index("responses_previous", "responses")
    op.drop_column("responses", "alive")
    op.drop_column("responses", "events")
