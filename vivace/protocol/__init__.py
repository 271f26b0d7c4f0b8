"""The words: Responses items, events and requests as data, and the Service and Generation contracts."""
