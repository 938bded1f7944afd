"""The load: sends requests to an OpenAI-compatible server, and stamps what comes back."""
