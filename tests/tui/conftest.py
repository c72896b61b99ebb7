"""What the tests of the dashboard share."""

from kasmon.tui.gateway.theme_library import shipped, shipped_names
from tests.support.tui.pilot_pauses import shorten_pauses
from tests.support.tui.stylesheet_cache import share_parsed_stylesheets

for _name in shipped_names():  # the app is made on the test's loop, where reading files is an error
    shipped(_name)
share_parsed_stylesheets()
shorten_pauses()
