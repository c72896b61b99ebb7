"""The sessions of other machines: what one machine offers, how it is carried, and the local copy of it."""
