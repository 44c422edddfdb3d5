"""Tables and pictures of runs, for people; trains nothing."""
