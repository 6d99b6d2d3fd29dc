"""Conversations that remember: ``LLM.session``.

A session keeps messages and the token ids computed from them. It can be rewound, forked, and saved
to a file. The engine finds the cached keys and values of a session by its token ids
(onward doctor --docs sessions).
"""
