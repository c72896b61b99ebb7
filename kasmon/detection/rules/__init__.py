"""The rules in TOML that read screens: `schema` describes a file, `file` loads one, `catalog` finds all of them."""
