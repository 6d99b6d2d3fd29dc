"""Answers for a program: JSON of a given schema, and one of several choices."""

import json

import onward

schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["planet", "star", "moon"]},
        "colours": {"type": "array", "items": {"enum": ["red", "blue", "white"]}, "maxItems": 3},
    },
    "required": ["name", "kind", "colours"],
    "additionalProperties": False,
}

with onward.LLM() as llm:
    answer = llm.chat("Describe Mars as JSON.", json_schema=schema, max_new_tokens=128)
    assert answer.finish_reason == "stop"  # "length" would mean that the JSON is incomplete
    print(json.loads(answer.text))

    review = "The food was cold and the waiter was rude. Was the guest happy? Answer:"
    verdict = llm.generate(review, choices=[" yes", " no"])
    print(verdict.text.strip())
