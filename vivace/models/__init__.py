"""The weights: which models there are, where their files come from, and how to read them.

Nothing here imports torch, and everything heavy (gguf, tokenizers, huggingface_hub) is imported where it is used: the
command line imports this package before it knows what it has to do.
"""
