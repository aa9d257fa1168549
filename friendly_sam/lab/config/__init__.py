"""A run as one value: its schema, the registry of methods, presets, YAML and identity.

May import `errors` and `reading`, and nothing outside the standard library when it is imported
itself: the Hugging Face adapter reads `config.methods` without the extra `[lab]`.
"""
