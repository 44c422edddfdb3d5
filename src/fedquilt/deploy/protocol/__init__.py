"""What the server and a site send each other."""
