"""Load the default model, continue one text, print the result."""

import onward

with onward.LLM() as llm:
    result = llm.generate("The capital of France is", max_new_tokens=16)
    print(result.text)
    print(result.finish_reason, result.usage, result.timings)
