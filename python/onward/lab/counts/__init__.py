"""What a model and its cache need, counted from the spec: bytes read, bytes kept, operations."""
