"""Markdown for a terminal.

`renderer.draw_markdown` returns rows, `parser` reads Markdown with markdown-it-py, `links` says which addresses may be
opened.
"""
