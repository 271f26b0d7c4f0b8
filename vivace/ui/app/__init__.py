"""The terminal app. Import :mod:`vivace.ui.app.run` to start it; nothing here is imported by other commands."""
