"""The tokenizer of terminal output."""
