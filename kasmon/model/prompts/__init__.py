"""What goes with a prompt besides its text: `image` has the pictures."""
