"""Beam search: the best hypotheses with their scores, and log-probabilities."""

import math

import onward

with onward.LLM() as llm:
    result = llm.chat(
        "Name a planet.", num_beams=4, num_return_sequences=3, max_new_tokens=24, logprobs=2
    )
    for sequence in result.sequences:  # best first
        print(f"{sequence.score:.3f}  {sequence.text!r}")

    assert result.logprobs is not None
    for token in result.logprobs[:5]:
        (rival, rival_logprob) = next(pair for pair in token.top if pair[0] != token.token_id)
        print(
            f"{llm.detokenize([token.token_id])!r} {math.exp(token.logprob):.0%}, "
            f"next to {llm.detokenize([rival])!r} {math.exp(rival_logprob):.0%}"
        )
