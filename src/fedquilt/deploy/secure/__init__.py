"""Secure summation: the server learns the sum of the sites' updates, and no site's own."""
