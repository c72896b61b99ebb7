"""The dashboard in a browser on this machine: who may come in, what the page is, and one dashboard for each visit.

textual-serve brings the page's terminal (its script, style and fonts). Its server and its driver are not used: it lets
in whoever asks, and a dashboard on its pipes would have no terminal to give to a session.
"""
