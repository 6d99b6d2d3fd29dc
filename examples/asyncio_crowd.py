"""Several coroutines send requests at once; each step of the engine gives every request a token."""

import asyncio

import onward

QUESTIONS = ("Name a colour.", "Name a river.", "Name a metal.")


async def main() -> None:
    with onward.LLM() as llm:
        prompts = [llm.chat_token_ids(question) for question in QUESTIONS]
        answers = await asyncio.gather(*(llm.agenerate(p, max_new_tokens=16) for p in prompts))
        for question, answer in zip(QUESTIONS, answers, strict=True):
            print(f"{question} {answer}")
        async for piece in llm.astream(prompts[0], max_new_tokens=16):
            print(piece, end="", flush=True)
        print()


asyncio.run(main())
