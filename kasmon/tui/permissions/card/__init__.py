"""The permission card: start at `card`; `choices` has its keys, `decision` the answers, `view` draws it."""
