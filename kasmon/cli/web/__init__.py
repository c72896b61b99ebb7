"""`kasmon web`: the dashboard in a browser (`command`), and links to the page of one request (`links`)."""
