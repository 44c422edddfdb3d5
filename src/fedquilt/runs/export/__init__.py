"""Export a trained model to formats that other software reads."""
