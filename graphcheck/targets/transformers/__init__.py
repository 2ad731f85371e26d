"""The reference: Hugging Face transformers, run in a child process, one prompt at a time."""
