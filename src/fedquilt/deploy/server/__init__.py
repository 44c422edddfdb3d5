"""The server side of a study."""
