"""The dashboard in a browser on this machine: access control, the page, and one dashboard for each open page.

textual-serve provides the page's terminal (its script, style and fonts). Its server and driver are not used: the server
has no access control, and a dashboard on pipes would have no terminal to attach to a session.
"""
