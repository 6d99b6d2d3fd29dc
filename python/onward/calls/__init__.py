"""One call: from prompts to requests in the engine, and from their events to results."""
