"""Values that travel and what they rest on; knows nothing of learning, images or networks."""
