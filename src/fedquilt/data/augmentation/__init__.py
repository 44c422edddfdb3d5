"""Random views of a batch: geometric, photometric and blur augmentation."""
