"""The inbox, a list of all requests: start at `screen`; `state` has its rows and marks, `list` draws them."""
