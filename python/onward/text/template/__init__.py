"""Chat templates: messages to prompts, in a sandbox."""
