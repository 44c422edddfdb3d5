"""A study across hospitals: what both sides agree on, send, check and keep, without any network."""
