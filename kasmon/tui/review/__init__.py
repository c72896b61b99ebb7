"""The review of what a session changed: `screen.ReviewScreen`, opened by `controller.ReviewController`.

`diff_view.DiffView` draws one file from the rows of `diff_rows`; `dialogs` write comments and confirm changes of hunks.
"""
