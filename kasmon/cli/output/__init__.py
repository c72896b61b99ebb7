"""What commands print: cleaned text for people (`console`, `table`), JSON for programs (`json_objects`)."""
