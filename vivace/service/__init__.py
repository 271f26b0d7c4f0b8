"""The rules: between a request and the backend that answers it."""
