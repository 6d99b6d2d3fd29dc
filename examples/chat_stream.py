"""A conversation of two turns, printed while it is generated."""

import onward

with onward.LLM() as llm:
    messages = []
    for question in ("Name one planet.", "Is it larger than the Earth?"):
        messages.append({"role": "user", "content": question})
        print(f"> {question}")
        pieces = []
        for piece in llm.chat(messages, stream=True, max_new_tokens=32):
            print(piece, end="", flush=True)
            pieces.append(piece)
        print()
        messages.append({"role": "assistant", "content": "".join(pieces)})
