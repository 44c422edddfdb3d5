"""The method contract, one client's round, and the server's rounds."""
