"""What may leave a site: the disclosure floor, a site's policy, and the server's checks."""
