"""Conversations that remember: ``LLM.session``.

A session is messages and the token ids that were computed of them; it can go back, go two ways, and
be kept in a file. What the engine holds of it is found by its tokens (onward doctor --docs
sessions).
"""
