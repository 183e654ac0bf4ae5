"""The API server: objects are JSON as the API says it, in plain dicts."""
