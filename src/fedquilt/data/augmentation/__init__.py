"""Random views of a batch: geometry, colours and blur, drawn on the device."""
