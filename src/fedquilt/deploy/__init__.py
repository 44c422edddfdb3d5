"""A study across hospitals: the agreement, the server side, the site side, and the network."""
