"""Tables and pictures made from run folders; nothing here trains."""
