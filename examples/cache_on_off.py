"""The gain of the KV cache: time of a token with and without it, by the number of earlier tokens.

With the cache, the keys and values of every token are computed once, so the time of a token hardly
depends on the length of the text. Without it, each token computes all earlier tokens again: n
tokens after a prompt of one token take n (n + 1) / 2 computations instead of n. The texts are the
same.

    python examples/cache_on_off.py [FILE.svg or FILE.png]      # with a file: a plot, too
"""

import sys

import onward
from onward.lab.report import Chart, Curve, write

LENGTHS = (16, 64, 256)
COUNTED = (8, 16, 32)
WAYS = {True: "with the cache", False: "without the cache"}
TEXT = "The apple fell, as apples do, and this time a girl looked up. " * 100


def written(llm, prompt, tokens, cache):
    """Generate exactly `tokens` tokens by greedy choice."""
    return llm.generate(
        prompt, max_new_tokens=tokens, temperature=0.0, ignore_eos=True, cache=cache
    )


with onward.LLM() as llm:
    text = llm.tokenize(TEXT)
    milliseconds = {True: [], False: []}
    print("tokens before  ms with  ms without")
    for length in LENGTHS:
        texts = set()
        for cache in WAYS:
            result = written(llm, text[:length], 4, cache)
            milliseconds[cache].append(1e3 * result.timings.time_per_output_token_s)
            texts.add(result.text)
        assert len(texts) == 1
        print(f"{length:13,}  {milliseconds[True][-1]:7.2f}  {milliseconds[False][-1]:10.2f}")

    print("\ntokens written  K/V with  K/V without")
    for tokens in COUNTED:
        computed = []
        for cache in WAYS:
            llm.cache.clear()
            before = llm.stats()["kv_computations"]
            written(llm, text[:1], tokens, cache)
            computed.append(llm.stats()["kv_computations"] - before)
        assert computed == [tokens, tokens * (tokens + 1) // 2]
        print(f"{tokens:14,}  {computed[0]:8,}  {computed[1]:11,}")

    if len(sys.argv) > 1:
        curves = tuple(
            Curve(name, tuple(zip(LENGTHS, milliseconds[cache], strict=True)))
            for cache, name in WAYS.items()
        )
        title = f"{llm.name}: time to one token"
        chart = Chart(title, "tokens before it", curves, "{:,g} ms".format, step=2, dots=True)
        write(chart, sys.argv[1])
        print(f"\nwrote {sys.argv[1]}")
