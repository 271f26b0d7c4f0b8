"""Run by alembic: the migrations on the connection that the service opened."""

from alembic import context

from vivace.service.database import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)

with context.begin_transaction():
    context.run_migrations()
