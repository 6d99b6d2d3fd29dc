"""The same tokens with and without the KV cache, and how many keys and values each computed.

With the cache every token's keys and values are computed once. Without it every step computes all
positions again, so n tokens after a prompt of one token cost n (n + 1) / 2.
"""

import onward

TOKENS = 24

with onward.LLM() as llm:
    prompt = llm.tokenize("Gravity")[:1]
    texts = {}
    for cache in (True, False):
        before = llm.stats()["kv_computations"]
        result = llm.generate(prompt, max_new_tokens=TOKENS, ignore_eos=True, cache=cache)
        computed = llm.stats()["kv_computations"] - before
        texts[cache] = result.text
        print(
            f"cache={cache!s:5}  {computed:4} K/V computations  "
            f"{result.timings.time_per_output_token_s * 1e3:.1f} ms a token"
        )
    assert texts[True] == texts[False]
