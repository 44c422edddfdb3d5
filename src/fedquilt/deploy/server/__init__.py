"""The server's half of a study."""
