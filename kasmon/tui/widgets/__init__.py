"""Widgets that several screens use: a reader of long text, styled lines, an input for a search."""
