"""Several prompts in one call: one batch, where each prompt gets the answer that it would get
alone.
"""

import onward

prompts = ["Once upon a time", "def fibonacci(n):", "The three primary colours are"]

with onward.LLM() as llm:
    results = llm.generate(prompts, max_new_tokens=24, temperature=0.8, top_p=0.9, seed=7)
    for prompt, result in zip(prompts, results, strict=True):
        print(f"--- {prompt}")
        print(result.text)
    alone = llm.generate(prompts[1], max_new_tokens=24, temperature=0.8, top_p=0.9, seed=7)
    assert alone.token_ids == results[1].token_ids
