"""The report as one HTML file: facts of a run folder, sections made of them, and the page."""
