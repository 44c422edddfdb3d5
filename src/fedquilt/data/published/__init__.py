"""Published data sets: their files, tables, splits and where they come from."""
