"""A session: a conversation that is forked, edited, saved, and continued after a restart."""

import tempfile
from pathlib import Path

import onward

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "planets.session"
    with onward.LLM() as llm:
        session = llm.session("You answer in one sentence.", max_new_tokens=32)
        print(session.send("Name one planet."))
        other = session.fork()
        for piece in session.stream("Is it larger than the Earth?"):
            print(piece, end="", flush=True)
        print()
        print("fork:", other.send("How many moons does it have?"))
        session.edit(-2, "How far away is it?")  # replaces the last question
        print("edited:", session.resend())
        session.save(file)

    with onward.LLM() as llm:  # as after a restart
        session = llm.session(max_new_tokens=32)
        session.load(file)
        result = session.send("Why?")
        print(result)
        print(f"{result.usage.cached_tokens} of {result.usage.prompt_tokens} tokens reused")
