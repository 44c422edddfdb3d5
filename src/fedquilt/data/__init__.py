"""Images and labels with their annotation mask; clients, annotations, batches."""
