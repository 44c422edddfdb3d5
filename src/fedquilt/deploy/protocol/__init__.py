"""The messages between server and sites, and the channel that carries them."""
