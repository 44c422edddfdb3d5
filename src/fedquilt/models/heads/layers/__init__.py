"""What heads are made of: attention, graphs, branches and fixed directions."""
