"""A ground-truth server: it speaks the OpenAI API as vLLM does, and records what it really sent, and when."""
