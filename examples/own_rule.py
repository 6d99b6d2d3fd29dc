"""Your own rules: a function that changes scores, and a function that ends the output."""

import onward

with onward.LLM() as llm:
    comma = set(llm.tokenize(",")) | set(llm.tokenize(" ,"))

    def no_commas(token_ids, scores):
        scores[list(comma)] = float("-inf")

    def three_sentences(token_ids):
        return llm.detokenize(token_ids).count(".") >= 3

    prompt = "The sea is wide."
    result = llm.generate(
        prompt, max_new_tokens=80, logits_processor=no_commas, stopping_criteria=three_sentences
    )
    assert "," not in result.text
    print(prompt + result.text)
